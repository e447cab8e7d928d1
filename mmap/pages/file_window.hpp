// Parts of a file that are mapped for a moment, besides its mapping: what is advised here changes
// nothing there, and leaves no mapping behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "mmap/file.hpp"

namespace weightmap::os {

// Read-only. Not guarded: pages are populated and looked at here, but never read by address.
class FileWindow {
 public:
  struct Part {
    std::uint64_t offset;  // in the file, a multiple of the alignment
    std::uint64_t length;  // likewise, but for the last one
  };

  // The parts side by side, at an address that is a multiple of `alignment`, which is a power of
  // two and at least a page.
  FileWindow(const File& file, std::span<const Part> parts, std::uint64_t alignment) noexcept;
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;
  ~FileWindow();

  std::span<std::byte> bytes() const noexcept { return bytes_; }  // empty: the system refused

 private:
  std::size_t reserved_ = 0;
  void* reservation_;
  std::span<std::byte> bytes_;
};

}  // namespace weightmap::os
