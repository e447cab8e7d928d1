// Whether a file has all that its own metadata says.
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/system/file/file.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct Wholeness {
  // That it is damaged, truncated or was never written, or, for a format without pickles, any
  // reason for which an open refuses it. None for a file of no format that is opened.
  std::optional<Error> damage;
  std::uint64_t unread_bytes = 0;  // CheckpointInfo::unread_bytes
  std::uint64_t hole_bytes = 0;    // see hole_bytes()
};

// Parses the metadata of `content`, all of `file` or the part of it from `begin` on, as an open of
// `path` does, and maps nothing. Without a file, holes are not looked for.
Wholeness look_for_damage(const bytes::ByteSource& content, const os::File* file,
                          std::uint64_t begin, const std::filesystem::path& path,
                          const OpenOptions& options);

}  // namespace weightmap
