// Changes a file in place. Several processes may do so at once, each in its own ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// All functions need a file that is open for writing, and fail with io if the system refuses.

// The range must lie within the file.
Result<void> write_in_place(const File& file, std::uint64_t offset,
                            std::span<const std::byte> content);
// Allocates disk space for holes in the range, so that writes through a mapping cannot fail. Does
// nothing if the file system does not support that.
Result<void> fill_holes(const File& file, std::uint64_t offset, std::uint64_t length);
// Flushes the content to the disk.
Result<void> sync_content(const File& file);

struct Holes {
  std::uint64_t bytes = 0;  // in blocks that lie fully in the range and are not allocated
  // All of these blocks are so, or the last one of the file: the range was never written, unless it
  // is all zeros, which copies may leave out.
  bool is_unwritten = false;
};
// None if the file system does not report them. Works for any open file.
Holes find_holes(const File& file, std::uint64_t offset, std::uint64_t length) noexcept;

}  // namespace weightmap::os
