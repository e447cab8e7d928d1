// Dicts that hold one key more than once.
//
// Python keeps the first of the equal keys, in its place, and the last of their values. The search
// costs more than the rest of the parse, so it runs only after a repeated key was found.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/tree_walk.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// A key under Python's equality: 1, True and 1.0 are one key. Borrows the text of `tree`. The order
// serves sorting only and has no other meaning.
class EqualKey {
 public:
  EqualKey(const value::Tree& tree, const value::Cell& key) noexcept;

  // False for NaN, and for tuples, objects and other kinds whose comparison rules are unknown here.
  bool is_comparable() const noexcept { return group_ != Group::other; }
  std::size_t text_bytes() const noexcept { return text_.size(); }
  const value::Cell& cell() const noexcept { return cell_; }

  friend bool operator==(const EqualKey& a, const EqualKey& b) noexcept { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const EqualKey& a, const EqualKey& b) noexcept;

 private:
  enum class Group : std::uint8_t { none, integer, real, big_integer, string, bytes, other };

  value::Cell cell_;
  Group group_ = Group::other;
  std::uint64_t bits_ = 0;
  std::string_view text_;
};

// Returns the error for the second occurrence of a key in a dict. A reader that keeps the last of
// the two can drop the first instead: see drop_repeated_keys().
[[gnu::cold]] Error key_twice(const value::Tree& tree, const value::Cell& key,
                              std::uint64_t pickle_offset);
// True if the error came from key_twice(), even with a prefix before its message.
[[gnu::cold]] bool is_key_twice(const Error& error) noexcept;

// Marks of a later walk begin here, above every mark that this one leaves in the tree.
inline constexpr std::uint32_t mark_after_repeated_keys = 0x80000000;

// Removes the items that Python would not keep from each dict of the tree and each object of a
// dict-like class, and returns how many it removed. Keys with unknown comparison rules, such as
// tuples, stay. The caller must have exclusive access to the tree.
Result<std::uint64_t> drop_repeated_keys(const value::Tree& tree, const ReadLimits& limits);

}  // namespace weightmap::torch
