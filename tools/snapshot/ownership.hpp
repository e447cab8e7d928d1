// Whether a file or folder is this user's own. Restoring an image gives it this user's rights, or
// those of root, so an image that another user can have written is never looked into.
#pragma once

#include <filesystem>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Fails with invalid_argument unless the effective user owns the open file, and no other user may
// write to it; with io if the system does not tell.
Result<void> expect_own(int descriptor);

// Has this user alone read and write the files of a folder.
Result<void> make_private(const std::filesystem::path& folder);

}  // namespace weightmap::cli::snapshot
