// Finds repeated names in a file, which would make it ambiguous.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

namespace weightmap::bytes {

// A name and its place.
struct Named {
  std::string_view text;
  std::uint64_t position;
};

// Returns the first name, in file order, that repeats an earlier one; nullptr without any. Sorts
// them.
inline const Named* find_repeated(std::vector<Named>& names) {
  std::ranges::sort(names, {},
                    [](const Named& name) { return std::tie(name.text, name.position); });
  const Named* again = nullptr;
  for (std::size_t i = 1; i < names.size(); ++i)
    if (names[i].text == names[i - 1].text &&
        (again == nullptr || names[i].position < again->position))
      again = &names[i];
  return again;
}

}  // namespace weightmap::bytes
