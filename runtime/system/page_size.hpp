// The sizes of pages of memory.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "runtime/base/bytes/round_up.hpp"

namespace weightmap::os {

inline std::uint64_t page_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}
// Rounded up to whole pages.
inline std::uint64_t whole_pages(std::uint64_t length) noexcept {
  return bytes::round_up(length, page_bytes());
}

// The page cache's largest unit and the unit of large reads. A multiple of every page size.
inline constexpr std::uint64_t large_page = std::uint64_t{2} << 20;

}  // namespace weightmap::os
