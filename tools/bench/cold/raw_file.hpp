// Regular files with plain system calls.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/support/descriptor.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// Returns "PATH: WHAT: message of errno".
Error system_error(const std::string& path, const char* what);

class RawFile {
 public:
  // `flags` are added to O_RDONLY | O_CLOEXEC.
  static Result<RawFile> open(const std::string& path, int flags = 0);

  int descriptor() const noexcept { return descriptor_.get(); }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  RawFile(Descriptor descriptor, std::uint64_t bytes) noexcept
      : descriptor_(std::move(descriptor)), bytes_(bytes) {}
  Descriptor descriptor_;
  std::uint64_t bytes_;
};

// Opens the files of a checkpoint, by position in Checkpoint::source().
Result<std::vector<RawFile>> open_sources(const Checkpoint& checkpoint, int flags = 0);

}  // namespace weightmap::cli::bench
