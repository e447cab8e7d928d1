// Samples the page sizes in which the page cache holds a file.
//
// The first reader decides them, until the file is evicted. A file in pages of
// 2 MiB is mapped in about a millisecond per gigabyte; pages of 4 KiB cost a fault each, which
// takes a hundred times as long.
#pragma once

#include <cstdint>
#include <optional>

#include "mmap/pages/page_cache.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::mmap {

struct HugeSample {
  std::uint64_t bytes = 0;       // sampled; 0: no cached huge range, or sampling failed
  std::uint64_t huge_bytes = 0;  // the part in pages of 2 MiB
  // True if this kernel is known to use pages of 2 MiB for this file system on request.
  bool could_be_huge = false;

  // True if less than half of the sample is huge. nullopt without a sample, or if it is unknown
  // whether huge pages are possible.
  std::optional<bool> is_fragmented() const noexcept;
};

// Maps up to eight fully cached ranges of 2 MiB, inspects their pages, and unmaps them. Reads
// nothing from the disk.
HugeSample sample_huge_pages(const os::File& file, const CachedPages& cached);

// Returns the size of a huge page, usually 2 MiB; 0 if this kernel has none for files.
std::uint64_t huge_page_bytes();

}  // namespace weightmap::mmap
