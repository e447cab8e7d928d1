// Prove that names of a directory differ, and find a record by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/decimal.hpp"
#include "runtime/base/zip/record.hpp"

namespace weightmap::zip {

// Index of torch's storages "top/data/0", "top/data/1", ... by number.
//
// A number is the name of one record only. So a number that occurs once proves that its name is
// unique, in any order of the records and without comparing names.
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

// Of ASCII letters, whose case torch's reader ignores.
std::string in_lower_case(std::string_view name);

// The index serves the records that StorageNumbers does not. They are few as a rule, and are
// sorted. In an archive without numbers it serves all records, at one comparison per record where
// names ascend by (length, bytes) or by bytes: the few others are looked up in that run by binary
// search.
class NameIndex {
 public:
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  enum class Order : std::uint8_t { by_length, by_bytes };

  NameIndex() = default;
  explicit NameIndex(std::span<const Record> records);
  // Indexes only the records at these positions.
  NameIndex(std::span<const Record> records, std::vector<std::uint32_t> some);

  // A pair of records of one name, if there is one.
  const std::optional<Pair>& duplicate() const noexcept { return duplicate_; }

  // Returns the record named `folder` + `rest`; nullptr if there is none. `records` must be those
  // of the constructor.
  const Record* find(std::span<const Record> records, std::string_view folder,
                     std::string_view rest) const noexcept;

 private:
  void sort_others(std::span<const Record> records);
  void find_duplicate(std::span<const Record> records);

  std::size_t run_begin_ = 0;  // the longest run of ascending names
  std::size_t run_end_ = 0;
  Order run_order_ = Order::by_length;
  std::vector<std::uint32_t> others_;  // records outside the run, ascending by (length, bytes)
  std::optional<Pair> duplicate_;
};

}  // namespace weightmap::zip
