// Files in /dev/shm: memory that processes find by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Returns /dev/shm/NAME. Fails with invalid_argument for a name that is empty, begins with a dot,
// contains a slash or a zero byte, or is longer than 255 bytes.
Result<std::filesystem::path> shared_path(const std::string& name);

// Fails with invalid_argument if the name exists.
Result<void> check_free(const std::filesystem::path& path);

// Returns the number of bytes that are free in the file system of /dev/shm.
Result<std::uint64_t> shared_bytes_left();

// Opens the file for reading by its public name.
Result<UniqueFd> open_shared_file(const std::filesystem::path& path);

// Fails with io if there is no such file or the system refuses, with invalid_argument if it is not
// a regular file of this user.
Result<void> remove_shared_file(const std::filesystem::path& path);

}  // namespace weightmap::os
