#pragma once

#include <filesystem>
#include <vector>

namespace weightmap {

// What files_of() returns as far as it can be told without opening any: the file, or for a folder,
// the name of a model and what may name other files, all files of the folder.
std::vector<std::filesystem::path> unopened_files_of(const std::filesystem::path& path);

}  // namespace weightmap
