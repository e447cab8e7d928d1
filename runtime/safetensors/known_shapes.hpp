// The quick way through a header: text that was read before is compared, not parsed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/bytes/little_endian.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::safetensors {

// Goes along text as nearly all writers write it, with a blank behind each colon and comma or none.
class UsualText {
 public:
  explicit UsualText(std::string_view text) noexcept
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  template <std::size_t size>
  bool take(const char (&literal)[size]) noexcept {
    constexpr std::size_t length = size - 1;
    if (left() < length || std::memcmp(at_, literal, length) != 0) return false;
    at_ += length;
    if (left() != 0 && *at_ == ' ') ++at_;
    return true;
  }
  // Of at most 15 digits, with more text behind them.
  bool number(std::uint64_t& number) noexcept {
    constexpr std::size_t word_bytes = 8;
    if (left() < 2 * word_bytes) return false;
    const Digits high(at_);
    if (high.count == 0 || (high.count > 1 && *at_ == '0')) return false;
    number = high.value;
    at_ += high.count;
    if (high.count < word_bytes) return true;
    const Digits low(at_);
    constexpr std::array<std::uint64_t, word_bytes> powers = {
        1, 10, 100, 1000, 10'000, 100'000, 1'000'000, 10'000'000};
    if (low.count == word_bytes) return false;
    number = number * powers[low.count] + low.value;
    at_ += low.count;
    return true;
  }
  std::size_t taken() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

 private:
  // The digits that eight bytes begin with.
  struct Digits {
    explicit Digits(const char* text) noexcept {
      const auto word = bytes::load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(text)) ^
                        0x3030303030303030;  // '0' to '9' become 0 to 9
      const std::uint64_t others = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
      count = static_cast<std::size_t>(std::countr_zero(others)) / 8;
      if (count == 0) return;
      // Two digits, then four, then eight become one number.
      const std::uint64_t digits = word << 8 * (8 - count);
      const std::uint64_t pairs = digits * 10 + (digits >> 8);
      constexpr std::uint64_t even = 0x000000FF000000FF;
      value = static_cast<std::uint32_t>(
          ((pairs & even) * 0x000F424000000064 + (pairs >> 16 & even) * 0x0000271000000001) >> 32);
    }
    std::size_t count;
    std::uint64_t value = 0;
  };
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  const char* begin_;
  const char* at_;
  const char* end_;
};

// Tensors that were read lately, by the text of their type and shape: {"dtype":"F32","shape":[4,4].
// A model has few of these, so most tensors are read by comparing text.
class KnownShapes {
 public:
  struct Known {
    std::string_view text;
    std::uint64_t nbytes;
    std::uint32_t first_dim;
    DType dtype;
    std::uint8_t rank;
    bool is_viewable;
  };

  // Up to the end of the first array in `text`; empty if that is far off.
  static std::string_view shape_text(std::string_view text) noexcept {
    constexpr std::size_t far = 256;
    const void* const end = std::memchr(text.data(), ']', std::min(far, text.size()));
    if (end == nullptr) return {};
    return text.substr(0,
                       static_cast<std::size_t>(static_cast<const char*>(end) - text.data()) + 1);
  }
  Known& place_of(std::string_view text) noexcept {
    std::uint64_t last = 0;
    if (text.size() >= sizeof last)
      std::memcpy(&last, text.data() + text.size() - sizeof last, sizeof last);
    return known_[(last + text.size()) * 0x9E3779B97F4A7C15 >> 58];
  }

 private:
  std::array<Known, 64> known_{};
};

}  // namespace weightmap::safetensors
