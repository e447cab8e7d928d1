// The words of enumerations.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace weightmap {

// `words` are in the order of the values; any other value is "unknown".
template <class Enum>
constexpr std::string_view word_of(Enum value, std::span<const std::string_view> words) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < words.size() ? words[index] : "unknown";
}

}  // namespace weightmap
