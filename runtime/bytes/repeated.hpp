// Names that stand in a file more than once, which would be two ways to read it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weightmap::bytes {

// A name, and where it stands.
struct Named {
  std::string_view text;
  std::uint64_t position;
};

// The first, in the order of the file, of those whose text another one before it has; nullptr if
// there is none. Sorts them.
const Named* find_repeated(std::vector<Named>& names);

}  // namespace weightmap::bytes
