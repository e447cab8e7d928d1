// A file in memory, for what is opened by descriptor.
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
  // Nobody can change it from now on.
  void seal();

 private:
  int descriptor_;
};

}  // namespace weightmap::fuzz
