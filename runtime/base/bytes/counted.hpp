// Numbers with their nouns, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weightmap::bytes {

// Returns "1 byte", "2 bytes". For nouns with a regular plural.
[[gnu::cold]] inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace weightmap::bytes
