// Numbers in text, as others write it. decimal.hpp has those that torch's names are made of.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace weightmap::bytes {

// Takes the digits off the front of the text. nullopt if there are none, or 64 bits do not hold the
// number; then the text stays as it is.
inline std::optional<std::uint64_t> take_number(std::string_view& text, int base = 10) noexcept {
  std::uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

// Returns the number that the whole text is; nullopt for any other text.
inline std::optional<std::uint64_t> number(std::string_view text, int base = 10) noexcept {
  const std::optional<std::uint64_t> value = take_number(text, base);
  return text.empty() ? value : std::nullopt;
}

}  // namespace weightmap::bytes
