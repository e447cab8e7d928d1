// Proves that names of a directory differ, and finds a record by name.
//
// The index serves the records that StorageNumbers does not. They are few as a rule, and are
// sorted. In an archive without numbers it serves all records, at one comparison per record where
// names ascend by (length, bytes) or by bytes: the few others are looked up in that run by binary
// search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/zip/record.hpp"

namespace weightmap::zip {

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
