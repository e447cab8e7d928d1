// Keys of a dict as Python compares them: 1, True and 1.0 are one key.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "runtime/value/tree.hpp"
#include "weightmap/error.hpp"

namespace weightmap::torch {

// Borrows the text of `tree`. The order means nothing; it is there to sort by.
class EqualKey {
 public:
  EqualKey(const value::Tree& tree, const value::Cell& key) noexcept;

  // False for tuples, objects and what else is compared by rules that are not known here, and for
  // what is not a number, which does not equal itself.
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

// For the second place where a dict has the key of a first one.
// A reader that keeps the last of the two can go on without the first one: repeated_keys.hpp.
[[gnu::cold]] Error key_twice(const value::Tree& tree, const value::Cell& key,
                              std::uint64_t pickle_offset);
// Whether an error is one of key_twice(), with whatever in front of its message.
[[gnu::cold]] bool is_key_twice(const Error& error) noexcept;

}  // namespace weightmap::torch
