// The mark of a folder whose files are being replaced by those of another version of the set: while
// it is there, they are of two versions.
#pragma once

#include <filesystem>

#include "weightmap/result.hpp"

namespace weightmap::sets {

inline constexpr const char* update_mark = ".weightmap-update";

// Fails with corrupt, about no file, if the folder has the mark.
Result<void> check_no_update(const std::filesystem::path& folder);

}  // namespace weightmap::sets
