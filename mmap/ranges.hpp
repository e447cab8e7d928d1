// Making a range of a mapped file stay in memory, or go.
#pragma once

#include <cstdint>

#include "mmap/mapped_file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Keeps the pages of the range that are mapped in memory until the mapping ends. Brings none in.
// Fails with io where RLIMIT_MEMLOCK does not allow it. Precondition: the range lies in the file.
Result<void> lock_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// Unmaps the whole pages in the range, and asks the system to drop them from the page cache: those
// that another process has mapped, or that are not on the disk yet, stay. A later touch reads them
// again. Preconditions: the range lies in the file; the mapping is none of those that keep what is
// written to them (private and writable), since that would be lost.
void drop_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Makes the pages of the range the first that the system takes when it needs memory (Linux 5.4).
void yield_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Whether a page fault may read more than its own page, or 2 MiB where the mapping has large pages.
// It does after a mapping is made.
void allow_readahead(const Mapping& mapping, bool allowed) noexcept;

}  // namespace weightmap::mmap
