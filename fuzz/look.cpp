#include "fuzz/look.hpp"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <vector>

#include "fuzz/target.hpp"

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

void check_refusal(const Error& error, std::uint64_t file_bytes) {
  require(!error.message.empty(), "a refusal without a word");
  require(error.message.size() <= 2000, "a message without end");
  require(
      std::ranges::all_of(error.message, [](unsigned char c) { return c >= 0x20 && c != 0x7F; }),
      "a message that is not printable");
  require(error.file_offset == Error::no_offset || error.file_offset <= file_bytes,
          "an error at no byte of the file");
}

void check_catalog(const catalog::Catalog& catalog, std::uint64_t file_bytes) {
  for (std::size_t i = 0; i < catalog.size(); ++i) {
    const catalog::Entry& entry = catalog[i];
    const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
    require(storage.position <= file_bytes && storage.nbytes <= file_bytes - storage.position,
            "a storage lies outside the file");
    require(catalog.find(catalog.name(entry)) == i, "a tensor is not found by its name");
    look_at(std::as_bytes(std::span(catalog.dims(entry), 2u * entry.rank)));
    look_at_text(catalog.location(entry));
    look_at_text(catalog.text(storage.key));
  }
}

}  // namespace weightmap::fuzz
