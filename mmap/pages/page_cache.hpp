// Queries and evicts the pages of a file in the page cache.
//
// The system answers only the file's owner and users who may write to it. For others it would
// report every page as cached; they get an io error with EPERM instead.
#pragma once

#include <cstdint>

#include "mmap/mapped_file.hpp"
#include "mmap/pages/page_bits.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// The cached pages of a file at one moment.
class CachedPages {
 public:
  // Reads and maps no page, except a window of 1 GiB of address space at a time.
  static Result<CachedPages> of(const os::File& file);

  std::uint64_t cached_bytes() const noexcept { return cached_bytes(0, pages_.range_bytes()); }
  // Returns the cached bytes of [offset, offset + length), cut at the end of the file. A page at
  // the border counts with its part of the range.
  std::uint64_t cached_bytes(std::uint64_t offset, std::uint64_t length) const noexcept {
    return pages_.set_bytes(offset, length);
  }

 private:
  explicit CachedPages(std::uint64_t file_bytes) : pages_(file_bytes) {}
  // Adds a range of the file; `has_counts` if the system can count its cached pages.
  Result<void> append(const os::File& file, std::uint64_t offset, std::uint64_t size,
                      bool has_counts);
  // Adds `size` bytes that are mapped at `address`, whole pages but at the end of the file.
  Result<void> append(const void* address, std::uint64_t size);

  PageBits pages_;
};

// Fails with io if the system hides cached pages.
Result<void> check_tells_what_is_cached(const os::File& file);

// True if each page of a range is cached, or being read into the cache. Reads and maps no page.
// Also true if the system hides cached pages. Precondition: the range lies in the file.
bool is_cached(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// Equals CachedPages::of(file).cached_bytes(), by one system call if the kernel has it (Linux 6.5).
Result<std::uint64_t> cached_bytes_of(const os::File& file);

// True if the whole range is in the page cache; false also if the system does not tell. One or two
// system calls, and on overlayfs, where nothing is counted, a few. Precondition: length > 0.
bool is_surely_cached(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// Returns the dirty bytes among the cached ones; 0 if the kernel does not report them.
std::uint64_t unwritten_bytes_of(const os::File& file) noexcept;

// True if memory is the file's only storage, as for tmpfs. Nothing can be evicted.
bool lives_in_memory(const os::File& file) noexcept;
// The same of an open file or directory.
bool lives_in_memory(int descriptor) noexcept;
// The bytes that the file has in memory, which is its only storage; 0 for other files.
std::uint64_t bytes_living_in_memory(const os::File& file) noexcept;

// Asks the system to drop the whole file from the page cache, and returns the bytes that stay:
// pages that a process has mapped or locked, dirty pages (nothing is synced here), everything of a
// file that lives in memory.
Result<std::uint64_t> evict(const os::File& file, const Progress& progress = {});

}  // namespace weightmap::mmap
