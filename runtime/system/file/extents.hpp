// Counts the extents of a file.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/system/file/file.hpp"

namespace weightmap::os {

// Returns nullopt if the file system does not report them (tmpfs, NFS). Dirty pages may count
// differently later. Reads none of the file's content.
std::optional<std::uint64_t> extents_of(const File& file) noexcept;

}  // namespace weightmap::os
