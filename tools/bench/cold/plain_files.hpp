// Files with plain system calls: open, copied into memory, and a folder for temporary ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
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

// An ideal copying loader: a whole file in new memory of huge pages, read by two threads.
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

class TemporaryFolder {
 public:
  // Creates a folder in `parent`. Fails with io if that is not writable.
  static Result<TemporaryFolder> create(const std::filesystem::path& parent);

  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();  // removes it with its contents

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) noexcept : path_(std::move(path)) {}
  std::filesystem::path path_;  // empty: moved from
};

}  // namespace weightmap::cli::bench
