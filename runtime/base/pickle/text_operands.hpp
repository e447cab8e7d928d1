// Operands of protocol 0: numbers and texts, each on a line of its own.
//
// Only the spellings that picklers write are accepted. Python's two unpicklers disagree about some
// others (a leading zero, "-0", "+1", spaces), so all of these are refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weightmap::pickle {

// Python's default limit for integers from text.
constexpr std::size_t max_digits = 4300;

// True for digits without leading zeros, with a minus before a number below zero.
bool is_decimal(std::string_view text) noexcept;

// Returns nullopt beyond 64 bits. Precondition: is_decimal().
std::optional<std::int64_t> decode_small(std::string_view decimal) noexcept;

// Little-endian two's complement of minimal length.
struct DecodedInteger {
  std::array<unsigned char, max_digits / 2> bytes;
  std::size_t size;
};
// Precondition: is_decimal(), and at most max_digits digits.
DecodedInteger decode_integer(std::string_view decimal) noexcept;

// Reads a float in the spelling of repr(). Returns nullopt for any other text, and for a number
// that no float can hold.
std::optional<double> decode_real(std::string_view text) noexcept;

// The next two write at most `space_for(text)` bytes to `out` and return the count; nullopt if
// Python would refuse the text.
constexpr std::size_t space_for(std::string_view text) noexcept { return 2 * text.size(); }

// Decodes the text between the quotes of a Python 2 str, with the escapes of its source text.
std::optional<std::size_t> decode_escapes(std::string_view text, char* out) noexcept;

// Converts Latin-1 with \uXXXX and \UXXXXXXXX for other characters ("raw-unicode-escape") to UTF-8.
std::optional<std::size_t> decode_characters(std::string_view text, char* out) noexcept;

}  // namespace weightmap::pickle
