// Locks or evicts ranges of a mapped file.
#pragma once

#include <cstdint>

#include "mmap/mapped_file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Keeps the mapped pages of the range in memory until the mapping ends. Reads none. Fails with io
// if RLIMIT_MEMLOCK does not allow it. Precondition: the range lies in the file.
Result<void> lock_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// Unmaps the whole pages in the range, and asks the system to drop them from the page cache; dirty
// pages and those mapped by other processes stay. A later touch reads them again. Preconditions:
// the range lies in the file; the mapping is not private and writable, since that loses writes.
void drop_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Makes the pages of the range the first to be evicted under memory pressure (Linux 5.4).
void yield_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Sets whether a page fault may read more than its own page, or its 2 MiB if the mapping has huge
// pages. Allowed for a new mapping.
void allow_readahead(const Mapping& mapping, bool allowed) noexcept;

}  // namespace weightmap::mmap
