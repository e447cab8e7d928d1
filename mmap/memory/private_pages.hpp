// Memory of this process that takes the place of pages of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "mmap/mapping.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Fails with unsupported for a mapping whose pages cannot be replaced: a writable one would lose
// what was written, and a locked one its lock.
Result<void> check_replaceable(const Mapping& mapping);

// Fresh memory, not touched yet, as large as the pages that it will replace. Unmapped by the
// destructor, unless it took its place. The mapping must outlive it.
class PrivatePages {
 public:
  // For all pages of the mapping that [offset, offset + length) touches. In large pages, if those
  // of the mapping are. Fails with io if the system has no memory. Precondition: the range lies in
  // the mapping and is not empty.
  static Result<PrivatePages> for_range(const Mapping& mapping, std::uint64_t offset,
                                        std::uint64_t length);
  PrivatePages(PrivatePages&& other) noexcept
      : place_(other.place_), bytes_(std::exchange(other.bytes_, {})) {}
  PrivatePages& operator=(PrivatePages&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PrivatePages();

  // Whole pages; to be filled before they take their place. Empty afterwards.
  std::span<std::byte> bytes() const noexcept { return bytes_; }

  // Makes the pages read-only and puts them where the mapping has the file's, at once for all who
  // read there: they find the one or the other and never nothing. Unmapping the mapping unmaps
  // these, too. Fails with io, and leaves the mapping as it was, if the process has as many
  // mappings as it may (vm.max_map_count): each call can cost two.
  Result<void> take_place();

 private:
  PrivatePages(std::byte* place, std::span<std::byte> bytes) noexcept
      : place_(place), bytes_(bytes) {}

  std::byte* place_;
  std::span<std::byte> bytes_;
};

}  // namespace weightmap::os
