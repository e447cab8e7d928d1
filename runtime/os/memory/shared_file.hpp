// Files in /dev/shm: memory that processes find by a name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// /dev/shm/NAME. Fails with invalid_argument for a name that is empty, begins with a dot, has a
// slash or a zero byte in it, or is longer than 255 bytes.
Result<std::filesystem::path> shared_path(const std::string& name);

// Whether something has this name there already; invalid_argument if so.
Result<void> check_free(const std::filesystem::path& path);

// How many more bytes fit into the file system of /dev/shm.
Result<std::uint64_t> shared_bytes_left();

// Opens it for reading, as it is known by its name to others.
Result<UniqueFd> open_shared_file(const std::filesystem::path& path);

// Fails with io if there is no such file or the system refuses, with invalid_argument for what is
// no regular file of this user.
Result<void> remove_shared_file(const std::filesystem::path& path);

}  // namespace weightmap::os
