// Which format a file has, by its first and last bytes, and what it is if it has none of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weightmap/error.hpp"

namespace weightmap::format {

enum class Kind : std::uint8_t {
  unknown,  // describe_foreign() says what it is
  zip,      // a zip archive: what torch.save has written since 1.6, or another format
  legacy,   // a row of pickles and bytes: what torch.save wrote before
  safetensors,
  gguf,
  json,         // JSON text: an index of shards, or nothing of ours
  distributed,  // metadata of torch.distributed.checkpoint, a pickle that only its name tells
  needs_head,   // the tail alone does not tell
};

// How many bytes of the head describe_foreign() likes to see.
inline constexpr std::size_t head_bytes = 512;

// `tail`: the last bytes of a file of `file_bytes` bytes. `head`: its first ones; they may be left
// out, to be read only where the answer is needs_head.
Kind identify(std::span<const std::byte> head, std::span<const std::byte> tail,
              std::uint64_t file_bytes) noexcept;
// By the head alone: safetensors, gguf or json, else unknown.
Kind identify_head(std::span<const std::byte> head) noexcept;

// Whether the first bytes of a file are the magic number of a legacy stream, which is a pickle of
// protocol 2 to 5. torch goes by them, whatever is at the end of the file.
bool begins_legacy_stream(std::span<const std::byte> head) noexcept;

// An error that says what the file is instead of a checkpoint: Git LFS pointer, web page,
// compressed file, other model formats, a truncated archive. `head` is the beginning of a file of
// `file_bytes` bytes in which no end-of-central-directory record was found.
Error describe_foreign(std::span<const std::byte> head, std::uint64_t file_bytes);
// The same; nullopt where it is nothing that is known.
std::optional<Error> describe_stranger(std::span<const std::byte> head, std::uint64_t file_bytes);

}  // namespace weightmap::format
