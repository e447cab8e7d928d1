// The machine with and without packed calls, which must give one tree and one refusal.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <unordered_map>

#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/write.hpp"

namespace weightmap::test {

inline constexpr pickle::ParseLimits roomy{std::uint64_t{64} << 20, 1000};

// A whole tree as text, in which a node that was there before is its number: two trees with the
// same text have the same values and share them in the same way.
class TreeText {
 public:
  explicit TreeText(const value::Tree& tree) { add({&tree, tree.root()}); }
  const std::string& text() const { return text_; }

 private:
  void add(const Value& value) {
    using Kind = Value::Kind;
    const bool can_be_shared =
        value.kind() >= Kind::tuple && (value.kind() != Kind::tuple || value.size() > 0);
    if (can_be_shared) {
      const auto [known, is_new] = seen_.try_emplace(value, seen_.size());
      if (!is_new) {
        text_ += '#' + std::to_string(known->second) + ' ';
        return;
      }
    }
    text_ += to_string(value.kind());
    text_ += ' ';
    if (value.integer()) text_ += std::to_string(*value.integer());
    if (value.real()) text_ += std::to_string(*value.real());
    if (value.boolean()) text_ += std::to_string(*value.boolean());
    if (value.string()) text_ += *value.string();
    for (std::byte byte : value.big_integer().value_or(std::span<const std::byte>{}))
      text_ += static_cast<char>(byte);
    for (std::byte byte : value.bytes().value_or(std::span<const std::byte>{}))
      text_ += static_cast<char>(byte);
    text_ += value.module();
    text_ += value.name();
    text_ += '{';
    if (value.kind() == Kind::object) {
      text_ += value.is_new_object() ? "new " : "call ";
      add(value.callable());
      add(value.arguments());
    }
    if (value.kind() == Kind::persistent_id) add(value.persistent_id());
    for (const Value& element : value.elements()) add(element);
    for (const auto& [key, item] : value.items()) {
      add(key);
      add(item);
    }
    if (value.state()) add(*value.state());
    text_ += '}';
  }

  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };
  std::unordered_map<Value, std::size_t, Hash, Same> seen_;
  std::string text_;
};

// One run of the machine over bytes that outlive it.
struct Run {
  Run(std::span<const std::byte> bytes, pickle::Machine::Packing packing,
      const pickle::ParseLimits& limits = roomy, std::span<const pickle::NamedPickle> parts = {})
      : tree(std::make_unique<value::Tree>(bytes::Buffer(), bytes, *std::pmr::new_delete_resource(),
                                           bytes.size() + 16384, limits.budget_bytes)) {
    pickle::Machine machine(*tree, 1000, limits, packing, parts);
    has_tree = machine.run();
    must_repack = machine.must_repack();
    if (!has_tree) error = machine.take_error();
  }
  std::unique_ptr<value::Tree> tree;
  bool has_tree = false;
  bool must_repack = false;
  Error error;
};

inline bool is_written_alike(const value::Tree& a, const value::Tree& b) {
  const auto first = pickle::write({&a, a.root()});
  const auto second = pickle::write({&b, b.root()});
  if (!first || !second)
    return !first && !second && first.error().message == second.error().message;
  return *first == *second;
}

// Answers how many calls were packed.
inline std::uint64_t same_with_and_without_packing(
    std::span<const std::byte> bytes, const pickle::ParseLimits& limits = roomy,
    std::span<const pickle::NamedPickle> parts = {}) {
  const Run packed(bytes, pickle::Machine::Packing::on, limits, parts);
  if (packed.must_repack) return 0;  // parse() runs it again without
  const Run general(bytes, pickle::Machine::Packing::off, limits, parts);
  REQUIRE(packed.has_tree == general.has_tree);
  if (packed.has_tree) {
    const bool is_same_tree = TreeText(*packed.tree).text() == TreeText(*general.tree).text();
    CHECK(is_same_tree);
    CHECK(is_written_alike(*packed.tree, *general.tree));
    return packed.tree->packed_count();
  }
  CHECK(packed.error.code == general.error.code);
  CHECK(packed.error.message == general.error.message);
  CHECK(packed.error.file_offset == general.error.file_offset);
  return 0;
}
inline std::uint64_t same_with_and_without_packing(const std::string& text,
                                                   const pickle::ParseLimits& limits = roomy) {
  return same_with_and_without_packing(std::as_bytes(std::span(text)), limits);
}

}  // namespace weightmap::test
