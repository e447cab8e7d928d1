// The size of a page of memory.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace weightmap::os {

inline std::uint64_t page_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace weightmap::os
