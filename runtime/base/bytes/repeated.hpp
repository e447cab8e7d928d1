// Finds repeated names in a file, which would make it ambiguous.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace weightmap::bytes {

// A name and its place.
struct Named {
  std::string_view text;
  std::uint64_t position;
};

// Returns the first name, in file order, that repeats an earlier one; nullptr without any. Sorts
// them.
const Named* find_repeated(std::vector<Named>& names);

}  // namespace weightmap::bytes
