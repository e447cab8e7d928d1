// Changing a file where it lies. Several processes may do so at once, each its own ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// All of these take a file that is open for writing, and fail with io if the system refuses.

// Within the file.
Result<void> write_in_place(const File& file, std::uint64_t offset,
                            std::span<const std::byte> content);
// Gives holes in the range space on the disk, so that writing to it through a mapping cannot fail.
// Where the file system cannot, zeros that are not there yet are not written either.
Result<void> fill_holes(const File& file, std::uint64_t offset, std::uint64_t length);
// Writes the content to the disk.
Result<void> sync_content(const File& file);

// Whether none of the blocks that lie wholly in the range is on the disk, so that it was never
// written. False where there is none, or the file system does not tell. Any file that is open.
bool is_hole(const File& file, std::uint64_t offset, std::uint64_t length) noexcept;

}  // namespace weightmap::os
