// A file in memory, for functions that open descriptors.
#pragma once

#include <cstddef>
#include <span>

namespace weightmap::fuzz {

class MemoryFile {
 public:
  MemoryFile();
  explicit MemoryFile(std::span<const std::byte> content) : MemoryFile() { set(content); }
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile();

  int descriptor() const noexcept { return descriptor_; }
  void set(std::span<const std::byte> content);
  // Makes it immutable.
  void seal();

 private:
  int descriptor_;
};

}  // namespace weightmap::fuzz
