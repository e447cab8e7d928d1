// Which records are torch's storages "top/data/0", "top/data/1", ..., by their number.
//
// A number stands for one name only. So a number that is there once proves that the name is, in any
// order of the records and without comparing the name with another one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/bytes/decimal.hpp"

namespace weightmap::zip {

class StorageNumbers {
 public:
  static constexpr std::string_view folder = "data/";
  static constexpr std::uint32_t none = bytes::no_number;

  StorageNumbers() noexcept = default;
  // `table` has an element for each record of the archive, not initialised, and outlives this
  // object. Only numbers below its length are known here.
  explicit StorageNumbers(std::span<std::uint32_t> table) noexcept : table_(table) {
    std::fill(table.begin(), table.end(), none);
  }

  bool may_have(std::uint32_t number) const noexcept { return number < table_.size(); }
  // Notes that record `index` has `number`, which may be there. False if another one has it.
  bool add(std::uint32_t number, std::uint32_t index) noexcept {
    if (table_[number] != none) return false;
    table_[number] = index;
    highest_ = std::max(highest_, number);
    if (count_++ == 0) first_ = index;
    last_ = index;
    return true;
  }

  // The index of the record with this number, or none.
  std::uint32_t find(std::uint32_t number) const noexcept {
    return may_have(number) ? table_[number] : none;
  }
  std::uint32_t count() const noexcept { return count_; }
  // Whether their numbers are 0, 1, 2, ... in any order, and no other record stands between them.
  bool are_dense() const noexcept {
    return count_ != 0 && highest_ == count_ - 1 && last_ - first_ == count_ - 1;
  }
  // The index of the first of them in the directory. Precondition: there is one.
  std::uint32_t first() const noexcept { return first_; }

 private:
  std::span<std::uint32_t> table_;  // by number: the index of the record
  std::uint32_t count_ = 0;
  std::uint32_t highest_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t last_ = 0;
};

}  // namespace weightmap::zip
