#include "runtime/system/memory/host_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "runtime/system/unique_fd.hpp"

namespace weightmap::os {

bool host_takes_back_free_memory() noexcept {
  static const bool takes = [] {
    // Without a driver that reports, it is -1, or not there. A block has 2^order pages.
    const UniqueFd parameter(
        ::open("/sys/module/page_reporting/parameters/page_reporting_order", O_RDONLY | O_CLOEXEC));
    std::array<char, 1> first{};
    if (parameter.get() < 0 || ::read(parameter.get(), first.data(), first.size()) != 1)
      return false;
    return first[0] >= '1' && first[0] <= '9';
  }();
  return takes;
}

}  // namespace weightmap::os
