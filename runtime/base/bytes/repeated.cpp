#include "runtime/base/bytes/repeated.hpp"

#include <algorithm>
#include <tuple>

namespace weightmap::bytes {

const Named* find_repeated(std::vector<Named>& names) {
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
