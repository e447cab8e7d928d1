// Bringing a range of a mapped file into the page cache and, where the method does that, into the
// page table; or, past the page cache, into private memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mmap/direct_reader.hpp"
#include "mmap/file.hpp"
#include "mmap/mapping.hpp"
#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

enum class FillMethod : std::uint8_t {
  populate,    // MADV_POPULATE_READ (Linux 5.14): maps what it reads, and fails without a signal
  fault,       // touches a byte of each page
  sequential,  // the same under MADV_SEQUENTIAL
  read,        // pread into a scratch buffer: page cache only
  readahead,   // readahead(2): asks for it and does not wait; leaves 4 KiB pages behind
  willneed,    // MADV_WILLNEED: likewise
  // O_DIRECT into private memory that takes the place of the file's pages in the mapping. The page
  // cache stays as it was. For mappings that check_replaceable() has nothing against.
  direct,
};

// Whether the kernel knows the method. Reads nothing.
bool knows_method(const Mapping& mapping, FillMethod method) noexcept;

// One for each thread. The file and the mapping must outlive it.
class Filler {
 public:
  Filler(const File& file, const Mapping& mapping, FillMethod method) noexcept
      : file_(file), mapping_(mapping), method_(method), direct_(file) {}

  // Fails with io, at the first byte of the range, if the file was cut short or the disk failed.
  // Fails with unsupported if the file or the mapping cannot be filled by this method.
  // Precondition: the range lies in the file.
  Result<void> fill(std::uint64_t offset, std::uint64_t length);

  // The same for somebody who waits for just this range: where the system has large pages it reads
  // nothing ahead, which would share the disk with it.
  Result<void> fill_alone(std::uint64_t offset, std::uint64_t length);

  // The same by exact reads on a descriptor of its own, which read nothing ahead: for ranges of a
  // few pages, of which the others would bring in 2 MiB. Page cache only, and
  // nothing if the range is there; `direct`, which has no use for that and is as exact, does what
  // fill() does.
  Result<void> fill_exactly(std::uint64_t offset, std::uint64_t length);

  // Whether fill() finds what is cached already: not so past the page cache.
  bool uses_page_cache() const noexcept { return method_ != FillMethod::direct; }

 private:
  Result<void> bring_in(std::uint64_t offset, std::uint64_t length);
  Result<void> populate(std::uint64_t offset, std::uint64_t length);
  Result<void> touch(std::uint64_t offset, std::uint64_t length);
  Result<void> touch_in_order(std::uint64_t offset, std::uint64_t length);
  Result<void> read_all(int descriptor, std::uint64_t offset, std::uint64_t length);
  Result<void> replace(std::uint64_t offset, std::uint64_t length);

  const File& file_;
  const Mapping& mapping_;
  FillMethod method_;
  UniqueFd exact_;  // opened at the first fill_exactly()
  std::vector<std::byte> scratch_;
  DirectReader direct_;
};

}  // namespace weightmap::os
