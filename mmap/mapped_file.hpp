// One of the files of a mapping: its descriptor and the place of its bytes.
#pragma once

#include <cstdint>

#include "mmap/mapping.hpp"
#include "runtime/system/file/file.hpp"

namespace weightmap::mmap {

// Borrows both. Offsets are relative to the file.
class MappedFile {
 public:
  // `base` is the file's beginning in the mapping.
  MappedFile(const os::File& file, const Mapping& mapping, std::uint64_t base = 0) noexcept
      : file_(&file), mapping_(&mapping), base_(base) {}

  const os::File& file() const noexcept { return *file_; }
  const Mapping& mapping() const noexcept { return *mapping_; }
  // Returns a pointer for madvise() and the like, whose parameter is not const.
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
