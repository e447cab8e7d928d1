// The files of an image: their checksums, against damage, and whose they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/snapshot/manifest.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

std::uint64_t checksum_of(std::string_view text) noexcept;
std::string hexadecimal(std::uint64_t number);

// Returns the files of a folder with their checksums. Fails with io.
Result<std::vector<ImageFile>> checksum_files(const std::filesystem::path& folder);

// Reads all of these files, a few at a time. Fails with corrupt, naming the file, if one differs
// from what was recorded, with io if it cannot be read, and with invalid_argument if it is another
// user's, or others may write to it.
Result<void> verify_files(const std::filesystem::path& folder,
                          const std::vector<ImageFile>& expected);

// Fails with invalid_argument unless the effective user owns the open file or folder, and no other
// user may write to it; with io if the system does not tell. Restoring an image gives it this
// user's rights, or those of root, so one that another user can have written is never looked into.
Result<void> expect_own(int descriptor);

// Has this user alone read and write the files of a folder.
Result<void> make_private(const std::filesystem::path& folder);

}  // namespace weightmap::cli::snapshot
