// Index of torch's storages "top/data/0", "top/data/1", ... by number.
//
// A number is the name of one record only. So a number that occurs once proves that its name is
// unique, in any order of the records and without comparing names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/bytes/decimal.hpp"

namespace weightmap::zip {

class StorageNumbers {
 public:
  static constexpr std::string_view folder = "data/";
  static constexpr std::uint32_t none = bytes::no_number;

  StorageNumbers() noexcept = default;
  // `table` has an uninitialised element for each record of the archive, and must outlive this
  // object. Numbers from its length on are not supported.
  explicit StorageNumbers(std::span<std::uint32_t> table) noexcept : table_(table) {
    std::fill(table.begin(), table.end(), none);
  }

  bool may_have(std::uint32_t number) const noexcept { return number < table_.size(); }
  // Adds record `index` under `number`. Returns false if another record has the number.
  // Precondition: may_have(number).
  bool add(std::uint32_t number, std::uint32_t index) noexcept {
    if (table_[number] != none) return false;
    table_[number] = index;
    ++count_;
    return true;
  }

  // Returns the index of the record with this number, or none.
  std::uint32_t find(std::uint32_t number) const noexcept {
    return may_have(number) ? table_[number] : none;
  }
  std::uint32_t count() const noexcept { return count_; }

 private:
  std::span<std::uint32_t> table_;  // by number: the index of the record
  std::uint32_t count_ = 0;
};

}  // namespace weightmap::zip
