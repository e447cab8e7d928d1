// Into how many pieces the file system has cut a file.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/os/file/file.hpp"

namespace weightmap::os {

// nullopt where the file system does not tell (tmpfs, NFS). What is not on the disk yet
// may count otherwise later. Reads none of the file's content.
std::optional<std::uint64_t> extents_of(const File& file) noexcept;

}  // namespace weightmap::os
