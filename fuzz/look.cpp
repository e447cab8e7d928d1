#include "fuzz/look.hpp"

#include <unordered_set>
#include <vector>

namespace weightmap::fuzz {
namespace {

struct SameNode {
  bool operator()(const Value& a, const Value& b) const { return a.is_same_as(b); }
};
struct NodeHash {
  std::size_t operator()(const Value& value) const { return value.hash(); }
};
using Nodes = std::unordered_set<Value, NodeHash, SameNode>;

void look_at_scalar(const Value& value) {
  look_at_text(to_string(value.kind()));
  look_at_text(value.string().value_or(""));
  look_at_text(value.module());
  look_at_text(value.name());
  look_at(value.bytes().value_or(std::span<const std::byte>{}));
  look_at(value.big_integer().value_or(std::span<const std::byte>{}));
}

bool is_node(const Value& value) {
  return value.size() + value.item_count() != 0 || value.kind() == Value::Kind::object ||
         value.kind() == Value::Kind::persistent_id;
}

void add_children(const Value& value, std::vector<Value>& to) {
  for (const Value child : value.elements()) to.push_back(child);
  for (const auto& [key, item] : value.items()) {
    to.push_back(key);
    to.push_back(item);
  }
  if (value.kind() == Value::Kind::object) {
    to.push_back(value.callable());
    to.push_back(value.arguments());
    if (value.state()) to.push_back(*value.state());
  }
  if (value.kind() == Value::Kind::persistent_id) to.push_back(value.persistent_id());
}

}  // namespace

void look_at(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<unsigned>(byte);
  volatile unsigned kept = sum;
  (void)kept;
}

void look_at_text(std::string_view text) { look_at(std::as_bytes(std::span(text))); }

void look_at(const Value& root, const std::function<void(const Value&)>& visit) {
  Nodes seen;
  std::vector<Value> left{root};
  while (!left.empty()) {
    const Value value = left.back();
    left.pop_back();
    look_at_scalar(value);
    if (!is_node(value) || !seen.insert(value).second) continue;
    if (visit) visit(value);
    add_children(value, left);
  }
}

}  // namespace weightmap::fuzz
