// Numbers as torch writes them into names: "0", "17".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightmap::bytes {

inline constexpr std::uint32_t no_number = 0xFFFFFFFF;
inline constexpr std::size_t most_digits = 8;

// Returns the value of a canonical decimal number ("0", "17", not "017") below 10^8; no_number for
// any other text. So equal numbers have equal texts.
inline std::uint32_t decimal(std::string_view text) noexcept {
  if (text.empty() || text.size() > most_digits || (text.front() == '0' && text.size() > 1))
    return no_number;
  std::uint32_t value = 0;
  for (const char c : text) {
    const auto digit = static_cast<unsigned char>(c - '0');
    if (digit > 9) return no_number;
    value = 10 * value + digit;
  }
  return value;
}

}  // namespace weightmap::bytes
