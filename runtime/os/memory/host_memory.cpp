#include "runtime/os/memory/host_memory.hpp"

#include <fstream>

namespace weightmap::os {

bool host_takes_back_free_memory() noexcept {
  static const bool takes = [] {
    // Without a driver that reports, it is -1, or not there. A block of at least 2^0 pages.
    std::ifstream parameter("/sys/module/page_reporting/parameters/page_reporting_order");
    int order = 0;
    return parameter >> order && order > 0;
  }();
  return takes;
}

}  // namespace weightmap::os
