// An ideal copying loader.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// A whole file in new memory of huge pages, read by two threads.
class CopiedFile {
 public:
  // Fails with io if there is not enough memory or a read fails.
  static Result<CopiedFile> read(const std::string& path);

  CopiedFile(CopiedFile&& other) noexcept;
  CopiedFile& operator=(CopiedFile&&) = delete;
  ~CopiedFile();

  std::span<const std::byte> bytes() const noexcept { return memory_; }

 private:
  explicit CopiedFile(std::span<std::byte> memory) noexcept : memory_(memory) {}
  std::span<std::byte> memory_;
};

}  // namespace weightmap::cli::bench
