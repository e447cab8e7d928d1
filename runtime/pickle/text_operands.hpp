// Operands of protocol 0: numbers and texts, each on a line of its own.
//
// Only what picklers write is taken. Python's two unpicklers read some other spellings differently
// from one another (a leading zero, "-0", "+1", spaces), so all of these are refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weightmap::pickle {

// Python reads no longer integer from text, unless it is told to.
constexpr std::size_t max_digits = 4300;

// Digits, with a minus in front of a number below zero, and without zeros in front.
bool is_decimal(std::string_view text) noexcept;

// nullopt beyond 64 bits. Precondition: is_decimal().
std::optional<std::int64_t> decode_small(std::string_view decimal) noexcept;

// Little-endian two's complement, as short as it can be.
struct DecodedInteger {
  std::array<unsigned char, max_digits / 2> bytes;
  std::size_t size;
};
// Precondition: is_decimal(), and at most max_digits digits.
DecodedInteger decode_integer(std::string_view decimal) noexcept;

// As repr() spells a float. nullopt for any other text, and for a number that no float can hold.
std::optional<double> decode_real(std::string_view text) noexcept;

// The next two write at most `space_for(text)` bytes to `out` and answer how many; nullopt if the
// text is not what Python takes.
constexpr std::size_t space_for(std::string_view text) noexcept { return 2 * text.size(); }

// What stands between the quotes of a str of Python 2: escapes as in its source text.
std::optional<std::size_t> decode_escapes(std::string_view text, char* out) noexcept;

// Latin-1 with \uXXXX and \UXXXXXXXX for all else ("raw-unicode-escape"), to UTF-8.
std::optional<std::size_t> decode_characters(std::string_view text, char* out) noexcept;

}  // namespace weightmap::pickle
