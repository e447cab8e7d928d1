// What of a file lies in the page cache, and getting it out of there.
//
// The system tells this to the file's owner and to those who may write to it. To others it would
// say that every page is cached; they get an io error with EPERM instead.
#pragma once

#include <cstdint>

#include "mmap/mapped_file.hpp"
#include "mmap/pages/page_bits.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Which pages of a file were cached at one moment.
class CachedPages {
 public:
  // Reads no page and maps none, beyond a window of 1 GiB of address space at a time.
  static Result<CachedPages> of(const os::File& file);
  // The same through a mapping that exists. Pages which the mapping has for itself, copied by
  // writing, count as long as they are in memory. Does not notice that the system does not tell.
  static Result<CachedPages> of(const Mapping& mapping);

  std::uint64_t cached_bytes() const noexcept { return cached_bytes(0, pages_.range_bytes()); }
  // Of [offset, offset + length), cut at the end of the file. Counts bytes, not pages: a page that
  // the range begins or ends in counts with its part of the range.
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

// Fails with io where the system does not tell what is cached.
Result<void> check_tells_what_is_cached(const os::File& file);

// Whether each page of a range is cached, or being read into the cache. Reads no page and maps
// none. Where the system does not tell: true. Precondition: the range lies in the file.
bool is_cached(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// As CachedPages::of(file).cached_bytes(), by one system call where the kernel has it (Linux 6.5).
Result<std::uint64_t> cached_bytes_of(const os::File& file);

// Whether all of a range is in the page cache; false also if that cannot be known by counting. One
// system call. Precondition: length > 0.
bool is_surely_cached(const os::File& file, std::uint64_t offset, std::uint64_t length) noexcept;

// Of the cached bytes, the ones that are not on the disk yet; 0 where the kernel does not tell.
std::uint64_t unwritten_bytes_of(const os::File& file) noexcept;

// Whether the page cache is all there is of this file: tmpfs and its like. Nothing can be evicted.
bool lives_in_memory(const os::File& file) noexcept;

// Asks the system to drop the whole file from the page cache, and answers how many bytes stay:
// pages that a process has mapped or locked, pages that are not on the disk yet (nothing is
// synchronised here), everything of a file that lives in memory.
Result<std::uint64_t> evict(const os::File& file, const Progress& progress = {});

}  // namespace weightmap::mmap
