// A file in memory, for functions that open descriptors.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>

#include "fuzz/target.hpp"

namespace weightmap::fuzz {

class MemoryFile {
 public:
  MemoryFile() { require(descriptor_ >= 0, "no memory file"); }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  int descriptor() const noexcept { return descriptor_; }
  void set(std::span<const std::byte> content) {
    const bool is_set = ::ftruncate(descriptor_, 0) == 0 &&
                        ::pwrite(descriptor_, content.data(), content.size(), 0) ==
                            static_cast<ssize_t>(content.size());
    require(is_set, "a memory file cannot be written");
  }

 private:
  const int descriptor_ = ::memfd_create("fuzz", MFD_CLOEXEC);
};

}  // namespace weightmap::fuzz
