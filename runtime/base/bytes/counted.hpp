// Numbers in messages: with their nouns, and lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weightmap::bytes {

// Returns "1 byte", "2 bytes". For nouns with a regular plural.
[[gnu::cold]] inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

// Returns "[3, 0]"; long lists are cut.
[[gnu::cold]] inline std::string listed(std::span<const std::int64_t> numbers) {
  constexpr std::size_t most = 8;
  std::string text = "[";
  for (const std::int64_t number : numbers.first(std::min(most, numbers.size())))
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + (numbers.size() > most ? ", ...]" : "]");
}

}  // namespace weightmap::bytes
