// Opcodes of protocol 0, whose operands are numbers and texts, each on a line of its own.
//
// Only the spellings that picklers write are accepted. Python's two unpicklers disagree about some
// others (a leading zero, "-0", "+1", spaces), so all of these are refused.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/utf8.hpp"
#include "runtime/base/pickle/machine.hpp"
#include "runtime/base/pickle/opcode.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::pickle {
namespace {

using enum Value::Kind;

// Python's default limit for integers from text.
constexpr std::size_t max_digits = 4300;

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

// True for digits without leading zeros, with a minus before a number below zero.
bool is_decimal(std::string_view text) noexcept {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' && std::all_of(text.begin(), text.end(), is_digit);
}

// Returns nullopt beyond 64 bits. Precondition: is_decimal().
std::optional<std::int64_t> decode_small(std::string_view decimal) noexcept {
  std::int64_t value = 0;
  const char* const last = decimal.data() + decimal.size();
  if (std::from_chars(decimal.data(), last, value).ec != std::errc()) return std::nullopt;
  return value;
}

// Little-endian two's complement of minimal length.
struct DecodedInteger {
  std::array<unsigned char, max_digits / 2> bytes;
  std::size_t size;
};
// Precondition: is_decimal(), and at most max_digits digits.
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

// Reads a float in the spelling of repr(). Returns nullopt for any other text, and for a number
// that no float can hold.
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

// The next two write at most `space_for(text)` bytes to `out` and return the count; nullopt if
// Python would refuse the text.
constexpr std::size_t space_for(std::string_view text) noexcept { return 2 * text.size(); }

// Decodes the text between the quotes of a Python 2 str, with the escapes of its source text.
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

// Converts Latin-1 with \uXXXX and \UXXXXXXXX for other characters ("raw-unicode-escape") to UTF-8.
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

// True for ASCII without escapes, which needs no decoding.
bool is_plain(std::string_view text) noexcept {
  for (const char byte : text)
    if ((byte & 0x80) != 0 || byte == '\\') return false;
  return true;
}

}  // namespace

bool Machine::step_text(std::uint8_t opcode) {
  switch (opcode) {
    case op_INT:
      return push_int_line();
    case op_LONG:
      return push_long_line();
    case op_FLOAT:
      return push_float_line();
    case op_STRING:
      return push_string_line();
    case op_UNICODE:
      return push_unicode_line();
    case op_PUT:
      return put_line();
    case op_GET:
      return get_line();
    default:
      return refuse(opcode);
  }
}

bool Machine::fail_line(std::string_view line, const char* expected) {
  return fail(ErrorCode::corrupt, "opcode " + opcode_name(*opcode_at_) + " has the line " +
                                      bytes::quote(line) + ", expected " + expected);
}

bool Machine::push_int_line() {
  const std::string_view line = operand_.text;
  if (line == "00" || line == "01")
    return push(value::make_cell(boolean, std::uint64_t{line == "01"}));
  return push_decimal(line);
}

bool Machine::push_long_line() {
  std::string_view line = operand_.text;
  if (line.ends_with('L')) line.remove_suffix(1);
  return push_decimal(line);
}

bool Machine::push_decimal(std::string_view digits) {
  if (!is_decimal(digits)) return fail_line(digits, "a decimal number");
  if (digits.size() - digits.starts_with('-') > max_digits)
    return fail(ErrorCode::limit_exceeded, "opcode " + opcode_name(*opcode_at_) +
                                               " has a number of more than " +
                                               std::to_string(max_digits) + " digits");
  if (const auto small = decode_small(digits)) return push(value::make_integer(*small));
  const DecodedInteger made = decode_integer(digits);
  char* const kept = arena_.allocate<char>(made.size);
  if (kept == nullptr) return fail_budget();
  std::memcpy(kept, made.bytes.data(), made.size);
  return push_text(big_integer, {kept, made.size});
}

bool Machine::push_float_line() {
  const std::optional<double> made = decode_real(operand_.text);
  if (!made) return fail_line(operand_.text, "a number that a float can hold");
  return push(value::make_cell(real, std::bit_cast<std::uint64_t>(*made)));
}

bool Machine::push_string_line() {
  const std::string_view line = operand_.text;
  const bool is_quoted = line.size() >= 2 && line.front() == line.back() &&
                         (line.front() == '\'' || line.front() == '"');
  if (!is_quoted) return fail_line(line, "a text in quotes");
  const std::string_view content = line.substr(1, line.size() - 2);
  if (content.find('\\') == std::string_view::npos) return push_python_2(content);
  char* const kept = arena_.allocate<char>(space_for(content));
  if (kept == nullptr) return fail_budget();
  const std::optional<std::size_t> size = decode_escapes(content, kept);
  return size ? push_python_2({kept, *size}) : fail_line(line, "escapes as Python writes them");
}

bool Machine::push_unicode_line() {
  const std::string_view line = operand_.text;
  if (is_plain(line)) return push_text(string, line);
  char* const kept = arena_.allocate<char>(space_for(line));
  if (kept == nullptr) return fail_budget();
  const std::optional<std::size_t> size = decode_characters(line, kept);
  return size ? push_text(string, {kept, *size}) : fail_line(line, "escapes as Python writes them");
}

std::optional<std::uint64_t> Machine::id_of_line() {
  constexpr std::size_t most = 10;  // digits of 32 bits
  const std::string_view line = operand_.text;
  if (is_decimal(line) && !line.starts_with('-') && line.size() <= most)
    return static_cast<std::uint64_t>(*decode_small(line));
  fail_line(line, "a memo id");
  return std::nullopt;
}

bool Machine::put_line() {
  const std::optional<std::uint64_t> id = id_of_line();
  return id && put(*id);
}

bool Machine::get_line() {
  const std::optional<std::uint64_t> id = id_of_line();
  return id && get(*id);
}

}  // namespace weightmap::pickle
