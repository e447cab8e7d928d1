// Whether this system brings a file in by large pages, seen by trying.
#pragma once

#include <cstdint>

#include "mmap/mapping.hpp"

namespace weightmap::os {

inline constexpr std::uint64_t large_read = std::uint64_t{2} << 20;

// Touches one page with nothing read ahead, and looks whether the whole 2 MiB around it came with
// it. Where that is so (Linux 5.18, huge pages asked for, a file system with large folios), reading
// exactly what is wanted is as fast as reading ahead; elsewhere it would go by single pages. Also
// false where what is cached lies in small pieces, or if the page cannot be read.
// Precondition: `offset` is a multiple of large_read.
bool reads_large_pages(const Mapping& mapping, std::uint64_t offset);

}  // namespace weightmap::os
