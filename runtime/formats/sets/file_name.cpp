#include "runtime/formats/sets/file_name.hpp"

#include <algorithm>
#include <cstddef>

namespace weightmap::sets {

bool stays_below(std::string_view name) noexcept {
  if (name.empty() || name.find_first_of(std::string_view("\\:\0", 3)) != std::string_view::npos)
    return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace weightmap::sets
