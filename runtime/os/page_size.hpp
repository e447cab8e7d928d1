// The sizes of pages of memory.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace weightmap::os {

inline std::uint64_t page_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// What the page cache holds as one piece where it can, and the unit of large reads. A multiple of
// every page size there is.
inline constexpr std::uint64_t large_page = std::uint64_t{2} << 20;

}  // namespace weightmap::os
