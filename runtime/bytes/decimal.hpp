// Numbers as torch writes them into names: "0", "17".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/bytes/little_endian.hpp"

namespace weightmap::bytes {

inline constexpr std::uint32_t no_number = 0xFFFFFFFF;
inline constexpr std::size_t most_digits = 8;

// The value of a canonical decimal number ("0", "17", not "017") below 10^8 whose `length` digits
// end at `end`; no_number for any other text. So equal numbers are equal texts. Precondition: eight
// bytes before `end` may be read, however few of them are looked at.
inline std::uint32_t decimal_before(const std::byte* end, std::size_t length) noexcept {
  if (length - 1 >= most_digits) return no_number;
  const auto word = load_le<std::uint64_t>(end - most_digits);
  const std::uint64_t used = ~std::uint64_t{0} << 8 * (most_digits - length);
  // The value of one digit a byte, the last one uppermost.
  const std::uint64_t digits = (word ^ 0x3030303030303030) & used;
  if (((digits | (digits + 0x7676767676767676)) & 0x8080808080808080) != 0) return no_number;
  const bool leads_with_zero = ((digits >> 8 * (most_digits - length)) & 0xFF) == 0;
  if (leads_with_zero && length > 1) return no_number;
  // Two digits, then four, then eight become one number.
  const std::uint64_t pairs = digits * 10 + (digits >> 8);
  constexpr std::uint64_t even = 0x000000FF000000FF;
  return static_cast<std::uint32_t>(
      ((pairs & even) * 0x000F424000000064 + (pairs >> 16 & even) * 0x0000271000000001) >> 32);
}

// The same of any text.
inline std::uint32_t decimal(std::string_view text) noexcept {
  if (text.size() - 1 >= most_digits) return no_number;
  std::byte bytes[2 * most_digits] = {};
  std::memcpy(bytes + most_digits, text.data(), text.size());
  return decimal_before(bytes + most_digits + text.size(), text.size());
}

// "0", "1", "2", ... one after the other: tells the next one in fewer steps than its value takes.
// After "99999999" there is none.
class CountedDecimal {
 public:
  explicit CountedDecimal(std::uint32_t first = 0) noexcept : value_(first) { carry(); }

  std::uint32_t value() const noexcept { return value_; }
  // Whether the `length` bytes before `end` are this number. Precondition: as above.
  bool is_before(const std::byte* end, std::size_t length) const noexcept {
    return length == length_ &&
           ((load_le<std::uint64_t>(end - most_digits) ^ digits_) & used_) == 0;
  }
  void count() noexcept {
    ++value_;
    digits_ += last_digit;
    if (digits_ > 0x39FFFFFFFFFFFFFF) carry();
  }

 private:
  static constexpr std::uint64_t last_digit = std::uint64_t{1} << 56;
  void carry() noexcept {
    constexpr std::uint32_t end = 100'000'000;
    length_ = ~std::size_t{0};
    if (value_ >= end) return;
    digits_ = 0;
    length_ = 0;
    std::uint32_t rest = value_;
    do digits_ |= std::uint64_t{'0' + rest % 10} << (56 - 8 * length_++);
    while ((rest /= 10) != 0);
    used_ = ~std::uint64_t{0} << (64 - 8 * length_);
  }

  std::uint32_t value_;
  std::size_t length_;
  std::uint64_t digits_ = 0;  // the last one uppermost
  std::uint64_t used_ = 0;
};

}  // namespace weightmap::bytes
