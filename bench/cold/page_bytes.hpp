// The size of a page of memory.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace weightmap::cli::bench {

inline std::size_t page_bytes() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace weightmap::cli::bench
