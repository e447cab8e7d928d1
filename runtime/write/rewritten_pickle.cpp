#include "runtime/write/rewritten_pickle.hpp"

#include <array>
#include <memory>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/pickle/write.hpp"
#include "runtime/torch/names.hpp"
#include "runtime/value/builder.hpp"

namespace weightmap {
namespace {

using value::Builder;
using value::Cell;

// Calls in the place of those that change. Two trees cannot refer to each other, so what stays as
// it was is a reference in the new one: a call of `reference` with a number, which pickle::write()
// asks about.
class NewCalls {
 public:
  NewCalls() : build_(*std::pmr::new_delete_resource(), {~std::uint64_t{0} / 4, 1000}) {
    reference_ = build_.global("weightmap", "original");
  }

  void add(const TensorCall& call, const StorageUse& use, const StorageChange& change) {
    const Cell arguments = changed_arguments(call, use, change);
    const Value object = call.object;
    std::vector<Cell> outer;
    for (std::size_t i = 0; call.is_nested && i < object.arguments().size(); ++i)
      outer.push_back(i == 2 ? arguments : same(object.arguments()[i]));
    const Cell changed = build_.object(
        {.callable = same(object.callable()),
         .arguments = call.is_nested ? build_.tuple(outer) : arguments,
         .state = object.state() ? std::optional(same(*object.state())) : std::nullopt});
    at_position_.emplace(object.position(), changed_.size());
    changed_.push_back(changed);
  }

  Result<void> finish() {
    TRY_ASSIGN(tree_, std::move(build_).finish(build_.tuple(changed_)));
    return {};
  }

  // What is to be written in the place of the value.
  std::optional<Value> instead_of(const Value& value) const {
    if (value.kind() != Value::Kind::object) return std::nullopt;
    if (is_new(value)) {
      if (!value.callable().is_same_as({tree_.get(), reference_})) return std::nullopt;
      return originals_[static_cast<std::size_t>(*value.arguments()[0].integer())];
    }
    const auto found = at_position_.find(value.position());
    if (found == at_position_.end()) return std::nullopt;
    return Value(tree_.get(), changed_[found->second]);
  }
  bool is_new(const Value& value) const noexcept { return value.tree() == tree_.get(); }

 private:
  Cell same(const Value& original) {
    const Cell number = build_.integer(static_cast<std::int64_t>(originals_.size()));
    originals_.push_back(original);
    return build_.object({.callable = reference_, .arguments = build_.tuple(std::array{number})});
  }

  Cell changed_id(const Value& id, const StorageUse& use, const StorageChange& change) {
    std::vector<Cell> parts;
    for (const Value& part : id.elements()) parts.push_back(same(part));
    if (change.dtype) parts[1] = build_.global("torch", torch::storage_class(*change.dtype));
    const std::uint64_t numel =
        (change.last - change.first) / (use.dtype ? element_size(*use.dtype) : 1);
    parts[4] = build_.integer(static_cast<std::int64_t>(numel));
    return build_.persistent_id(build_.tuple(parts));
  }

  Cell changed_arguments(const TensorCall& call, const StorageUse& use,
                         const StorageChange& change) {
    std::vector<Cell> arguments;
    for (const Value& argument : call.arguments.elements()) arguments.push_back(same(argument));
    arguments[0] = changed_id(call.arguments[0].persistent_id(), use, change);
    // A tensor without elements may have begun in bytes that are left out.
    const auto before = static_cast<std::int64_t>(change.first / element_size(call.dtype));
    const auto after = static_cast<std::int64_t>(change.last / element_size(call.dtype));
    const std::int64_t offset = *call.arguments[1].integer();
    const bool is_within = offset >= before && offset <= after;
    arguments[1] = build_.integer(is_within ? offset - before : 0);
    return build_.tuple(arguments);
  }

  Builder build_;
  Cell reference_;
  std::vector<Value> originals_;
  std::vector<Cell> changed_;
  std::unordered_map<std::uint32_t, std::size_t> at_position_;  // of the original, in changed_
  std::unique_ptr<value::Tree> tree_;
};

}  // namespace

Result<std::vector<std::byte>> rewrite_pickle(const Value& root, const TensorCalls& calls,
                                              const StorageChanges& changes) {
  NewCalls instead;
  for (const TensorCall& call : calls.calls) {
    const auto change = changes.find(call.key);
    if (change != changes.end()) instead.add(call, calls.storages.at(call.key), change->second);
  }
  TRY(instead.finish());
  Result<void> refused;
  const auto replace = [&](const Value& value) -> std::optional<Value> {
    if (value.kind() == Value::Kind::persistent_id && !instead.is_new(value)) {
      const std::optional<std::string_view> key = storage_key(value);
      if (key && changes.contains(*key))
        refused = failure(ErrorCode::unsupported,
                          "storage data/" + bytes::escape(*key) +
                              " cannot be changed: the pickle refers to it outside of a tensor");
    }
    return instead.instead_of(value);
  };
  TRY_ASSIGN(std::vector<std::byte> written, pickle::write(root, {.replace = replace}));
  TRY(refused);
  return written;
}

}  // namespace weightmap
