// Identifies the format of a file by its first and last bytes, and describes foreign files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/zip/directory.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

enum class Kind : std::uint8_t {
  unknown,  // see describe_stranger()
  zip,      // a zip archive: torch.save's format since 1.6, NumPy's .npz, or another
  legacy,   // pickles and bytes: torch.save's format before
  pickle,   // a pickle of protocol 2 to 5 by its first bytes, whatever is behind it
  safetensors,
  gguf,
  npy,          // a single array of NumPy
  json,         // JSON text: an index of shards, or a foreign file
  distributed,  // metadata of torch.distributed.checkpoint, a pickle, known by its name only
  needs_head,   // the tail is not sufficient
};

// The part of the head that describe_stranger() uses.
inline constexpr std::size_t head_bytes = 512;

// `tail` is the last bytes of a file of `file_bytes` bytes. `head` is the first ones; it may be
// empty, and is then needed only if the result is needs_head.
Kind identify(std::span<const std::byte> head, std::span<const std::byte> tail,
              std::uint64_t file_bytes) noexcept;
// Uses the head alone; returns safetensors, gguf, npy or json, otherwise unknown.
Kind identify_head(std::span<const std::byte> head) noexcept;

// True if the file begins with the magic number of a legacy stream, which is a pickle of protocol 2
// to 5. torch decides by it, whatever the end of the file is.
bool begins_legacy_stream(std::span<const std::byte> head) noexcept;

// True if the file begins as a pickle of protocol 2 to 5 does, which a legacy stream does, too.
bool begins_pickle(std::span<const std::byte> head) noexcept;

// True for bzip2 with the magic number of a block, or of the end of a stream, behind which another
// may follow; for xz, lzma and lz4.
bool begins_packed(std::string_view head) noexcept;
// True for the header of zlib, unless text goes on behind it.
bool begins_zlib(std::string_view head) noexcept;

// Returns an error that names the file's actual type: Git LFS pointer, web page, compressed file,
// other model formats, a truncated archive. `head` is the beginning of a file of `file_bytes` bytes
// in which no end-of-central-directory record was found. nullopt for an unknown type.
std::optional<Error> describe_stranger(std::span<const std::byte> head, std::uint64_t file_bytes);

// Files of other programs, by their kind, and what to do with them.

// The last bytes of a file that name_stranger() uses.
inline constexpr std::size_t stranger_tail_bytes = 8;

// True for UBJSON, as XGBoost writes it, which begins like JSON.
bool begins_ubjson(std::string_view head) noexcept;

// Returns a sentence without its subject: "is a model of ONNX; ...". Empty for an unknown kind.
// `head` is at least the first head_bytes (identify.hpp) of a file of `file_bytes` bytes.
std::string_view name_stranger(std::string_view head, std::string_view tail,
                               std::uint64_t file_bytes) noexcept;
// Likewise of a zip archive that is none of torch's nor numpy's, by the names of its records.
std::string name_archive(const zip::Directory& directory);

}  // namespace weightmap::format
