// Files in /dev/shm: memory that processes find by a name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// /dev/shm/NAME. Fails with invalid_argument for a name that is empty, begins with a dot, has a
// slash or a zero byte in it, or is longer than 255 bytes.
Result<std::filesystem::path> shared_path(const std::string& name);

// Whether something has this name there already; invalid_argument if so.
Result<void> check_free(const std::filesystem::path& path);

// How many more bytes fit into the file system of /dev/shm.
Result<std::uint64_t> shared_bytes_left();

// A file of `bytes` zeros in /dev/shm that has no name yet, so that nothing of it stays if the
// process ends before it gets one. Mode 0600, close-on-exec, open for reading and writing.
Result<UniqueFd> make_unnamed_shared_file(std::uint64_t bytes);

// Gives that file its name, at once and only if nothing has it (fails with invalid_argument then),
// and opens it by that name for reading.
Result<UniqueFd> give_name(int descriptor, const std::filesystem::path& path);

// Fails with io if there is no such file or the system refuses, with invalid_argument for what is
// no regular file of this user.
Result<void> remove_shared_file(const std::filesystem::path& path);

}  // namespace weightmap::os
