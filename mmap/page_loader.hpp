// Ranges of a mapped file: read into the page cache and, if possible, faulted in; locked; evicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "mmap/mapped_file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

enum class LoadMethod : std::uint8_t {
  populate,  // MADV_POPULATE_READ (Linux 5.14): maps the pages, and fails without a signal
  copy,      // pread into a scratch buffer, whose copy touches each page; then as populate
  read,      // the same without mapping: page cache only
};
std::string_view to_string(LoadMethod method) noexcept;  // "populate", ...

// Returns `read` if the kernel does not know MADV_POPULATE_READ, `copy` for a mapping of small
// pages where a first touch is slow (system/facilities.hpp), and else `populate`. Reads
// nothing.
LoadMethod best_load_method(const Mapping& mapping) noexcept;

// Smaller ranges are read exactly, since a huge page would cost more than it gains.
inline constexpr std::uint64_t small_range = std::uint64_t{256} << 10;

// One object for each thread. The file and the mapping must outlive it. All fill functions fail
// with io, at the first byte that could not be read, if the file was truncated, was lost, or the
// disk failed. Precondition of all: the range lies in the file.
class PageLoader {
 public:
  PageLoader(const MappedFile& mapped, LoadMethod method) noexcept
      : mapped_(mapped), method_(method) {}

  // Switches to another file.
  void turn_to(const MappedFile& mapped) noexcept;

  // Fills the pages of the range. The mapping's read-ahead may read more, except for a small range,
  // which is read through a separate descriptor.
  Result<void> load(std::uint64_t offset, std::uint64_t length);

  // Does the same without reading any other page, even if the mapping reads ahead.
  Result<void> load_exactly(std::uint64_t offset, std::uint64_t length);

  // Does what fill() does for a thread that waits for this range: in whole huge pages unless it is
  // small and, if the system has huge pages, without read-ahead, which would compete for the disk.
  // Gives the mapping no advice, so that it is not split.
  Result<void> load_now(std::uint64_t offset, std::uint64_t length);

 private:
  Result<void> read_exactly(std::uint64_t offset, std::uint64_t length);
  Result<void> load_pages(std::uint64_t offset, std::uint64_t length, bool is_read);
  Result<void> read_all(int descriptor, std::uint64_t offset, std::uint64_t length);
  // True if the range has to be read before it is mapped, or is not mapped.
  bool has_to_read(std::uint64_t offset, std::uint64_t length) const;
  Result<void> populate(std::uint64_t offset, std::uint64_t length);

  const os::File& file() const noexcept { return mapped_.file(); }

  MappedFile mapped_;
  LoadMethod method_;
  os::UniqueFd exact_;  // opened at the first range that is read exactly
  std::vector<std::byte> scratch_;
};

// Keeps the mapped pages of the range in memory until the mapping ends. Reads none. Fails with io
// if RLIMIT_MEMLOCK does not allow it. Precondition: the range lies in the file.
Result<void> lock_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length);

// Unmaps the whole pages in the range, and asks the system to drop them from the page cache; dirty
// pages and those mapped by other processes stay. A later touch reads them again. Preconditions:
// the range lies in the file; the mapping is not private and writable, since that loses writes.
void drop_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Asks the system to read what is not cached of the range, and does not wait for it. Precondition:
// the range lies in the file.
void begin_to_read(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Unmaps the pages of the range, also those that it shares with its neighbours; they stay cached,
// and a later touch maps them again. Without effect on locked pages. Preconditions as for
// drop_range().
void unmap_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Makes the pages of the range the first to be evicted under memory pressure (Linux 5.4).
void yield_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept;

// Sets whether a page fault may read more than its own page, or its 2 MiB if the mapping has huge
// pages. Allowed for a new mapping.
void allow_readahead(const Mapping& mapping, bool allowed) noexcept;
// Sets it for the pages of a range of the mapping. Fails with io if the system refuses.
Result<void> allow_readahead(const Mapping& mapping, std::uint64_t position, std::uint64_t length,
                             bool allowed);

}  // namespace weightmap::mmap
