// The identity of a file's content, which distinguishes versions of a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Fields of fstat(). They differ between files, and between versions of one file that was
// rewritten, grown or truncated. A forged modification time goes unnoticed.
struct Generation {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // since 1970
  std::int64_t ctime_ns = 0;

  friend bool operator==(const Generation&, const Generation&) noexcept = default;
  // Returns true if the content is the same. The change time is not compared: renaming, linking and
  // unlinking a file change it without changing the content.
  bool same_content(const Generation& other) const noexcept {
    return device == other.device && inode == other.inode && size == other.size &&
           mtime_ns == other.mtime_ns;
  }
};

// Returns the generation of the file now at `path`; fails with io if there is none, or if the
// system refuses access. May be called from any thread.
WEIGHTMAP_API Result<Generation> generation_at(const std::filesystem::path& path);

}  // namespace weightmap
