// Files that are not a zip archive at all, told apart by their first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weightmap/error.hpp"

namespace weightmap {

// How many bytes of the head describe_stranger() likes to see.
inline constexpr std::size_t stranger_head_bytes = 512;

// An error that says what the file is instead of a checkpoint: Git LFS pointer, web page,
// compressed file, other model formats, an archive that was cut short. `head` is the beginning of a
// file of `file_bytes` bytes in which no end-of-central-directory record was found.
Error describe_stranger(std::span<const std::byte> head, std::uint64_t file_bytes);

}  // namespace weightmap
