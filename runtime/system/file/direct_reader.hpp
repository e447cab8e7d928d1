// Reads a file past the page cache.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "runtime/system/file/file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// If the file system refuses that, page-cache reads are the fallback, and why_not_direct() has the
// reason. The file must outlive the reader.
class DirectReader {
 public:
  explicit DirectReader(const File& file);

  // `memory` is whole pages that begin at a page; the offset is a multiple of the page size inside
  // the file. Bytes beyond the end of the file become zero, as in a mapping. Returns true if the
  // page cache was bypassed. Fails with io, at the first missing byte, if the file was truncated or
  // the disk failed. Any thread.
  Result<bool> read(std::uint64_t offset, std::span<std::byte> memory);

  // Empty unless the file system has refused. Any thread.
  std::string why_not_direct() const;

 private:
  Result<void> read_past_cache(std::uint64_t offset, std::span<std::byte> memory) const;

  const File& file_;
  UniqueFd direct_;  // none after a refusal
  mutable std::mutex mutex_;
  std::string why_not_direct_;  // protected by the mutex
};

}  // namespace weightmap::os
