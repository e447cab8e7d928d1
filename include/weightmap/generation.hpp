// The identity of a file's content: what tells one version of a checkpoint from another.
#pragma once

#include <cstdint>
#include <filesystem>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// As fstat() gives it. Files that were replaced, rewritten, grown or cut differ in it. A forged
// modification time is not seen.
struct Generation {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // since 1970
  std::int64_t ctime_ns = 0;

  friend bool operator==(const Generation&, const Generation&) noexcept = default;
  // Whether the content is the same. The change time is left out: renaming, linking and unlinking a
  // file change it, and do not touch what it holds.
  bool same_content(const Generation& other) const noexcept {
    return device == other.device && inode == other.inode && size == other.size &&
           mtime_ns == other.mtime_ns;
  }
};

// Of whatever has this path now. Fails with io if nothing has, or it cannot be looked at.
WEIGHTMAP_API Result<Generation> generation_at(const std::filesystem::path& path);

}  // namespace weightmap
