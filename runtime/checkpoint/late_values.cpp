// The values of a checkpoint, of which some are read when they are asked for.

#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

Value Checkpoint::root() const& noexcept {
  const value::Tree& tree = *state_->content().tree;
  return {&tree, tree.root()};
}

// Threads that ask at once each read them, and all get what the first one has read.
Result<Value> Checkpoint::values() const& {
  const format::Parsed& content = state_->content();
  if (!content.late) return root();
  const format::Values* known = state_->late_values.load(std::memory_order_acquire);
  if (known == nullptr) {
    TRY_ASSIGN(const catalog::Catalog* const catalog, state_->placed());
    std::vector<format::ValueFile> files;
    for (const SourceFile& source : state_->sources.opened())
      files.push_back({&source.file, source.shown_name});
    TRY_ASSIGN(
        format::Values read,
        about_shown(content.late->read(files, *catalog, state_->options), state_->shown_name()));
    auto made = std::make_unique<const format::Values>(std::move(read));
    if (state_->late_values.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
      known = made.release();
  }
  return Value(known->tree.get(), known->tree->root());
}

std::span<const std::string> left_out_values(const Checkpoint& checkpoint) noexcept {
  const format::Values* const known =
      Checkpoint::Access::state(checkpoint).late_values.load(std::memory_order_acquire);
  return known == nullptr ? std::span<const std::string>() : known->left_out;
}

std::optional<std::string_view> chunked_name(const Checkpoint& checkpoint,
                                             const Value& value) noexcept {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const format::Values* const late = state.late_values.load(std::memory_order_acquire);
  if (late == nullptr || value.tree() != late->tree.get() || value.kind() != Value::Kind::object ||
      value.arguments().size() == 0)
    return std::nullopt;
  const Value reference = value.arguments()[0];
  if (reference.kind() != Value::Kind::persistent_id) return std::nullopt;
  const std::optional<std::string_view> key = reference.persistent_id()[2].string();
  return key && state.content().chunked.contains(*key) ? key : std::nullopt;
}

}  // namespace weightmap
