// A look at how large the pieces are in which the page cache holds a file.
//
// The first reader decides that, and it stays so until the file is evicted. A file in pieces of
// 2 MiB is mapped in about a millisecond a gigabyte; in pieces of 4 KiB each costs a page fault,
// and the same takes a hundred times as long.
#pragma once

#include <cstdint>
#include <optional>

#include "mmap/pages/page_cache.hpp"
#include "runtime/os/file/file.hpp"

namespace weightmap::mmap {

struct HugeSample {
  std::uint64_t bytes = 0;  // looked at; 0: no 2 MiB in one piece are cached, or no way to look
  std::uint64_t huge_bytes = 0;  // of them, in pieces of 2 MiB
  // This kernel is known to hold files of this file system in pieces of 2 MiB if asked to.
  bool could_be_huge = false;

  // Less than half of what was looked at is huge. nullopt: nothing to look at, or it cannot be said
  // whether it could be better.
  std::optional<bool> is_fragmented() const noexcept;
};

// Maps up to eight ranges of 2 MiB that are cached as a whole, sees how, and unmaps them. Reads
// nothing from the disk.
HugeSample sample_huge_pages(const os::File& file, const CachedPages& cached);

// Bytes of a huge page, which is usually 2 MiB; 0 where this kernel has none for files.
std::uint64_t huge_page_bytes();

}  // namespace weightmap::mmap
