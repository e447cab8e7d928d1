// Parses any bytes as a pickle: parsed or refused. A written tree parses to an equal one.
#include <cstring>
#include <memory_resource>
#include <unordered_set>
#include <utility>

#include "fuzz/look.hpp"
#include "fuzz/mutation.hpp"
#include "fuzz/pickle_mutator.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/pickle/write.hpp"

namespace {

using namespace weightmap;

using Parsed = Result<std::unique_ptr<value::Tree>>;

Parsed parse(std::span<const std::byte> pickle, std::uint64_t budget, std::uint32_t depth) {
  bytes::Buffer copy(pickle.size(), *std::pmr::new_delete_resource());
  if (!pickle.empty()) std::memcpy(copy.data(), pickle.data(), pickle.size());
  const std::span<const std::byte> span(copy.data(), pickle.size());
  return pickle::parse(std::move(copy), span, 0, {budget, depth}, *std::pmr::new_delete_resource());
}

Value root_of(const value::Tree& tree) { return Value(&tree, tree.root()); }

// Protocol 2 has no opcode for these, so they return as calls.
bool is_written_as_call(Value::Kind kind) noexcept {
  using enum Value::Kind;
  return kind == bytes || kind == byte_array || kind == set || kind == frozen_set;
}

bool has_equal_scalar(const Value& a, const Value& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.has_value() == y.has_value() &&
           (!x || (x->size() == y->size() && std::memcmp(x->data(), y->data(), x->size()) == 0));
  };
  return a.boolean() == b.boolean() && a.integer() == b.integer() &&
         a.real().has_value() == b.real().has_value() &&
         (!a.real() ||
          std::bit_cast<std::uint64_t>(*a.real()) == std::bit_cast<std::uint64_t>(*b.real())) &&
         a.string() == b.string() && a.size() == b.size() && a.item_count() == b.item_count() &&
         a.module() == b.module() && a.name() == b.name() &&
         same(a.big_integer(), b.big_integer()) && a.is_new_object() == b.is_new_object();
}

struct Pair {
  Value a;
  Value b;
};

void add_children(const Value& a, const Value& b, std::vector<Pair>& to) {
  for (auto [x, y] = std::pair(a.elements().begin(), b.elements().begin()); x != a.elements().end();
       ++x, ++y)
    to.push_back({*x, *y});
  for (auto [x, y] = std::pair(a.items().begin(), b.items().begin()); x != a.items().end();
       ++x, ++y) {
    to.push_back({(*x).first, (*y).first});
    to.push_back({(*x).second, (*y).second});
  }
  if (a.kind() == Value::Kind::persistent_id) to.push_back({a.persistent_id(), b.persistent_id()});
  if (a.kind() != Value::Kind::object) return;
  to.push_back({a.callable(), b.callable()});
  to.push_back({a.arguments(), b.arguments()});
  fuzz::require(a.state().has_value() == b.state().has_value(), "a state was lost in writing");
  if (a.state()) to.push_back({*a.state(), *b.state()});
}

void require_equal(const Value& first, const Value& second) {
  const auto hash = [](const Value& value) { return value.hash(); };
  const auto same = [](const Value& x, const Value& y) { return x.is_same_as(y); };
  std::unordered_set<Value, decltype(hash), decltype(same)> seen(16, hash, same);
  std::vector<Pair> left{{first, second}};
  while (!left.empty()) {
    const auto [a, b] = left.back();
    left.pop_back();
    if (is_written_as_call(a.kind())) continue;
    fuzz::require(a.kind() == b.kind() && has_equal_scalar(a, b), "a value was changed in writing");
    const bool is_node = a.size() + a.item_count() != 0 || a.kind() == Value::Kind::object ||
                         a.kind() == Value::Kind::persistent_id;
    if (is_node && seen.insert(a).second) add_children(a, b, left);
  }
}

void check(std::span<const std::byte> input) {
  const Parsed parsed = parse(input, std::uint64_t{256} << 10, 1000);
  if (!parsed) return;
  const Value root = root_of(**parsed);
  fuzz::look_at(root);
  const Result<std::vector<std::byte>> written = pickle::write(root, {{}, std::uint64_t{1} << 20});
  if (!written) return;
  const Parsed again = parse(*written, std::uint64_t{1} << 28, 65535);
  fuzz::require(again.has_value(), "what was written cannot be parsed");
  require_equal(root, root_of(**again));
  const Result<std::vector<std::byte>> twice = pickle::write(root_of(**again));
  fuzz::require(twice.has_value() && *twice == *written, "writing again gives another pickle");
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
WEIGHTMAP_FUZZ_MUTATOR(weightmap::fuzz::mutate_pickle)
