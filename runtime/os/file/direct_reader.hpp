// Reading a file past the page cache.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "runtime/os/file/file.hpp"
#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Where the file system refuses reads past its cache, they go through it, and why_not_direct() says
// so. The file must outlive the reader.
class DirectReader {
 public:
  explicit DirectReader(const File& file);

  // The memory is whole pages that begin at a page, the offset a multiple of the page size inside
  // the file. What lies beyond the end of the file becomes zero, as in a mapping. Answers whether
  // the page cache was not filled. Fails with io, at the first byte that is missing, if the file
  // was truncated or the disk failed. Any thread.
  Result<bool> read(std::uint64_t offset, std::span<std::byte> memory);

  // Empty as long as the file system has not refused. Any thread.
  std::string why_not_direct() const;

 private:
  Result<void> read_past_cache(std::uint64_t offset, std::span<std::byte> memory) const;

  const File& file_;
  UniqueFd direct_;  // none if that is refused
  mutable std::mutex mutex_;
  std::string why_not_direct_;  // under the mutex
};

}  // namespace weightmap::os
