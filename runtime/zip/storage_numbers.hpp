// Which records are torch's storages "top/data/0", "top/data/1", ..., by their number.
//
// A number stands for one name only. So a number that is there once proves that the name is, in any
// order of the records and without comparing the name with another one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bytes/decimal.hpp"
#include "runtime/bytes/little_endian.hpp"

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

// Tells the number of a storage by its name.
class StorageNames {
 public:
  StorageNames() = default;
  explicit StorageNames(std::string_view top_folder)
      : prefix_(std::string(word, '\0').append(top_folder).append(StorageNumbers::folder)),
        length_(prefix_.size() - word) {
    if (length_ < word) unused_ = ~std::uint64_t{0} >> 8 * length_;
  }

  // bytes::no_number if it is not the name of a storage with a number. Precondition: eight bytes
  // before the name may be read, as they may in a directory, where the entry stands before it.
  std::uint32_t number_of(std::string_view name) const noexcept {
    const std::size_t digits = name.size() - length_;
    const auto* const begin = reinterpret_cast<const std::byte*>(name.data());
    if (digits - 1 >= bytes::most_digits || !has_prefix(begin)) return bytes::no_number;
    return bytes::decimal_before(begin + name.size(), digits);
  }
  // Whether it is the name of the storage `number`. Precondition: as above.
  bool is_name_of(const bytes::CountedDecimal& number, std::string_view name) const noexcept {
    const auto* const begin = reinterpret_cast<const std::byte*>(name.data());
    return name.size() > length_ && number.is_before(begin + name.size(), name.size() - length_) &&
           has_prefix(begin);
  }

 private:
  static constexpr std::size_t word = 8;

  // Word by word; the last one, which overlaps the one before, ends with the prefix.
  bool has_prefix(const std::byte* name) const noexcept {
    const auto* const prefix = reinterpret_cast<const std::byte*>(prefix_.data()) + word;
    const auto difference = [&](std::size_t end) {
      return bytes::load_le<std::uint64_t>(name + end - word) ^
             bytes::load_le<std::uint64_t>(prefix + end - word);
    };
    for (std::size_t end = word; end < length_; end += word)
      if (difference(end) != 0) return false;
    return (difference(length_) & ~unused_) == 0;
  }

  std::string prefix_;  // eight zero bytes, then what all names begin with
  std::size_t length_ = 0;
  std::uint64_t unused_ = 0;  // of the last word, where the prefix is shorter
};

}  // namespace weightmap::zip
