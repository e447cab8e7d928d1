#include "runtime/base/pickle/text_operands.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "runtime/base/bytes/utf8.hpp"

namespace weightmap::pickle {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Digits of base 2^32, least significant first, with room for 4,300 decimal digits.
struct Magnitude {
  std::array<std::uint32_t, 448> words{};
  std::size_t count = 0;

  void multiply_and_add(std::uint32_t factor, std::uint32_t addend) noexcept {
    std::uint64_t carry = addend;
    for (std::size_t i = 0; i < count; ++i) {
      carry += std::uint64_t{words[i]} * factor;
      words[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words[count++] = static_cast<std::uint32_t>(carry);
  }
};

// Takes a number of exactly `digits` digits, in a base up to 16, off the front of the text.
std::optional<std::uint32_t> take_number(std::string_view& text, std::size_t digits, int base) {
  if (text.size() < digits) return std::nullopt;
  std::uint32_t value = 0;
  const char* const last = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), last, value, base);
  if (error != std::errc() || stop != last) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

// Decodes one escape. `text` begins behind the backslash; the escape is taken off.
std::optional<char> take_escape(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  const char letter = text.front();
  constexpr std::string_view letters = "\\'\"abfnrtv";
  constexpr std::string_view meanings = "\\'\"\a\b\f\n\r\t\v";
  if (const std::size_t at = letters.find(letter); at != std::string_view::npos) {
    text.remove_prefix(1);
    return meanings[at];
  }
  std::optional<std::uint32_t> value;
  if (letter == 'x') {
    text.remove_prefix(1);
    value = take_number(text, 2, 16);
  } else {  // one to three octal digits
    const std::size_t digits =
        std::min({text.find_first_not_of("01234567"), text.size(), std::size_t{3}});
    if (digits > 0) value = take_number(text, digits, 8);
  }
  if (!value || *value > 0xFF) return std::nullopt;
  return static_cast<char>(*value);
}

}  // namespace

bool is_decimal(std::string_view text) noexcept {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' && std::all_of(text.begin(), text.end(), is_digit);
}

std::optional<std::int64_t> decode_small(std::string_view decimal) noexcept {
  std::int64_t value = 0;
  const char* const last = decimal.data() + decimal.size();
  if (std::from_chars(decimal.data(), last, value).ec != std::errc()) return std::nullopt;
  return value;
}

DecodedInteger decode_integer(std::string_view decimal) noexcept {
  const bool is_negative = decimal.starts_with('-');
  if (is_negative) decimal.remove_prefix(1);
  Magnitude magnitude;
  while (!decimal.empty()) {
    constexpr std::size_t at_once = 9;
    const std::size_t digits = std::min(at_once, decimal.size());
    std::uint32_t factor = 1;
    for (std::size_t i = 0; i < digits; ++i) factor *= 10;
    magnitude.multiply_and_add(factor, *take_number(decimal, digits, 10));
  }
  DecodedInteger made{};
  std::uint32_t carry = is_negative;
  for (std::size_t i = 0; i < 4 * magnitude.count + 1; ++i) {  // the last byte holds the sign
    const std::uint32_t word = magnitude.words[i / 4] >> (8 * (i % 4));
    const std::uint32_t byte = i / 4 < magnitude.count ? word & 0xFF : 0;
    const std::uint32_t signed_byte = (is_negative ? byte ^ 0xFF : byte) + carry;
    made.bytes[i] = static_cast<unsigned char>(signed_byte);
    carry = signed_byte >> 8;
  }
  made.size = 4 * magnitude.count + 1;
  const unsigned char sign = is_negative ? 0xFF : 0;
  while (made.size > 1 && made.bytes[made.size - 1] == sign &&
         (made.bytes[made.size - 2] & 0x80) == (sign & 0x80))
    --made.size;
  return made;
}

std::optional<double> decode_real(std::string_view text) noexcept {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return infinity;
  if (text == "-inf") return -infinity;
  if (text == "nan") return nan;
  if (text == "-nan") return -nan;
  if (text.find_first_not_of("0123456789.e+-") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || stop != last) return std::nullopt;
  return value;
}

std::optional<std::size_t> decode_escapes(std::string_view text, char* out) noexcept {
  std::size_t size = 0;
  while (!text.empty()) {
    char next = text.front();
    text.remove_prefix(1);
    if (next == '\\') {
      const std::optional<char> meant = take_escape(text);
      if (!meant) return std::nullopt;
      next = *meant;
    }
    out[size++] = next;
  }
  return size;
}

std::optional<std::size_t> decode_characters(std::string_view text, char* out) noexcept {
  std::size_t size = 0;
  while (!text.empty()) {
    std::uint32_t code = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    const char kind = code == '\\' && !text.empty() ? text.front() : '\0';
    if (kind == 'u' || kind == 'U') {
      text.remove_prefix(1);
      const std::optional<std::uint32_t> meant = take_number(text, kind == 'u' ? 4 : 8, 16);
      if (!meant || *meant > 0x10FFFF) return std::nullopt;
      code = *meant;
    } else if (code == '\\' && !text.empty()) {
      // The backslash stands for itself, and so does the next character, even another backslash.
      out[size++] = '\\';
      code = static_cast<unsigned char>(kind);
      text.remove_prefix(1);
    }
    size += bytes::put_code_point(code, out + size);
  }
  return size;
}

}  // namespace weightmap::pickle
