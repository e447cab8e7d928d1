// The named shared memory of a command, /dev/shm, which is its own: its files are part of the
// image, and two processes that were restored from it have them under the same names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Mounts an empty one in this namespace of mounts. Fails with io.
Result<void> mount_shared_memory();

// Writes a program for criu's --action-script into `folder`, and returns its path. It saves the
// files while the dumped processes stand still, into the archive that the variable of this name
// has.
inline constexpr const char* archive_variable = "WEIGHTMAP_SHARED_MEMORY";
Result<std::filesystem::path> write_saving_script(const std::filesystem::path& folder);

// Returns the archive of an image, and the words that put its files back.
std::filesystem::path archive_in(const std::filesystem::path& image);
std::vector<std::string> unpacking_words(const std::filesystem::path& image);

}  // namespace weightmap::cli::snapshot
