// Regular files with plain system calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// Returns "PATH: WHAT: message of errno".
Error system_error(const std::string& path, const char* what);

class RawFile {
 public:
  // `flags` are added to O_RDONLY | O_CLOEXEC.
  static Result<RawFile> open(const std::string& path, int flags = 0);

  RawFile(RawFile&& other) noexcept;
  RawFile& operator=(RawFile&&) = delete;
  ~RawFile();

  int descriptor() const noexcept { return descriptor_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  RawFile(int descriptor, std::uint64_t bytes) noexcept : descriptor_(descriptor), bytes_(bytes) {}
  int descriptor_;
  std::uint64_t bytes_;
};

// Opens the files of a checkpoint, by position in Checkpoint::source().
Result<std::vector<RawFile>> open_sources(const Checkpoint& checkpoint, int flags = 0);

}  // namespace weightmap::cli::bench
