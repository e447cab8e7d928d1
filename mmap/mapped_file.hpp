// One of the files of a mapping: what needs its descriptor, and where its bytes are.
#pragma once

#include <cstdint>

#include "mmap/mapping.hpp"
#include "runtime/os/file/file.hpp"

namespace weightmap::mmap {

// Borrows both. Offsets are those of the file.
class MappedFile {
 public:
  // `base`: where the file begins in the mapping.
  MappedFile(const os::File& file, const Mapping& mapping, std::uint64_t base = 0) noexcept
      : file_(&file), mapping_(&mapping), base_(base) {}

  const os::File& file() const noexcept { return *file_; }
  const Mapping& mapping() const noexcept { return *mapping_; }
  // For madvise() and its like, which take pages of whatever kind by a pointer to them.
  void* address_of(std::uint64_t offset) const noexcept {
    return const_cast<std::byte*>(mapping_->bytes().data() + base_ + offset);
  }
  Result<void> check_not_lost() const { return mapping_->check_not_lost(base_); }

 private:
  const os::File* file_;
  const Mapping* mapping_;
  std::uint64_t base_;
};

}  // namespace weightmap::mmap
