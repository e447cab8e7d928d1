// Writes a file past the page cache, which a large file would fill with what is on the disk anyway.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Where the file system refuses that, and for the parts of pages at both ends of a write, the bytes
// go through the page cache, and their way to the disk is started.
class DirectWriter {
 public:
  // The descriptor must outlive the writer, and be open for writing.
  explicit DirectWriter(int descriptor);

  // From here on all bytes go through the page cache, for one who reads them soon.
  void use_cache() noexcept { is_direct_ = false; }

  // Whole pages are written past the cache if `content` begins as far into a page of memory as the
  // offset into one of the file. Fails with io if the system refuses. Any thread.
  Result<void> write(std::uint64_t offset, std::span<const std::byte> content);

 private:
  Result<void> write_through_cache(std::uint64_t offset, std::span<const std::byte> content) const;

  int descriptor_;
  UniqueFd direct_;
  std::atomic<bool> is_direct_;
};

}  // namespace weightmap::os
