// Bringing a range of a mapped file into the page cache and, where the kernel can do that, into the
// page table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "mmap/mapped_file.hpp"
#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::mmap {

enum class LoadMethod : std::uint8_t {
  populate,  // MADV_POPULATE_READ (Linux 5.14): maps what it reads, and fails without a signal
  read,      // pread into a scratch buffer: page cache only
};
std::string_view to_string(LoadMethod method) noexcept;  // "populate", "read"

// `populate`, unless the kernel does not know it. Reads nothing.
LoadMethod best_load_method(const Mapping& mapping) noexcept;

// Ranges below this are read exactly, since a large page would cost more than it brings.
inline constexpr std::uint64_t small_range = std::uint64_t{256} << 10;

// One for each thread. The file and the mapping must outlive it. All load functions fail with io,
// at the first byte of what could not be read, if the file was truncated, was lost, or the disk
// failed. Precondition of all: the range lies in the file.
class PageLoader {
 public:
  PageLoader(const MappedFile& mapped, LoadMethod method) noexcept
      : mapped_(mapped), method_(method) {}

  // Goes on with another file.
  void turn_to(const MappedFile& mapped) noexcept;

  // The pages that the range touches. More may be read where the mapping reads ahead; not for a
  // small range, which is read by a descriptor of its own.
  Result<void> load(std::uint64_t offset, std::uint64_t length);

  // The same, and no other page is read, also where the mapping reads ahead.
  Result<void> load_exactly(std::uint64_t offset, std::uint64_t length);

  // As load() for somebody who waits for just this range: in whole large pages if it is not small,
  // and nothing is read ahead, which would share the disk with it, where the system has large
  // pages. Advises the mapping nothing, so that it is not split.
  Result<void> load_now(std::uint64_t offset, std::uint64_t length);

 private:
  Result<void> read_exactly(std::uint64_t offset, std::uint64_t length);
  Result<void> load_pages(std::uint64_t offset, std::uint64_t length, bool is_read);
  Result<void> read_all(int descriptor, std::uint64_t offset, std::uint64_t length);
  Result<void> populate(std::uint64_t offset, std::uint64_t length);

  const os::File& file() const noexcept { return mapped_.file(); }

  MappedFile mapped_;
  LoadMethod method_;
  os::UniqueFd exact_;  // opened at the first range that is read exactly
  std::vector<std::byte> scratch_;
};

}  // namespace weightmap::mmap
