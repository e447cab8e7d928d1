#pragma once

#include <filesystem>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap {

// The files that an open of this path would open: an index, metadata or a part of a split with the
// files that it names. A file of another content, or of none of ours, is one file.
Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path);

// The same as far as it can be told without opening any: the file, or for a folder, the name of a
// model and what may name other files, all files of the folder.
std::vector<std::filesystem::path> unopened_files_of(const std::filesystem::path& path);

}  // namespace weightmap
