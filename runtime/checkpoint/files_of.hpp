#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap {

// The files that an open of this path would open: an index, metadata or a part of a split with the
// files that it names. A file of another content, or of none of ours, is one file.
Result<std::vector<std::filesystem::path>> files_of(const std::filesystem::path& path);

// True if a file of this name may be an index, metadata or a part of a split.
bool may_name_others(const std::string& path);

}  // namespace weightmap
