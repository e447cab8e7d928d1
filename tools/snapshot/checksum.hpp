// Checksums of the files of an image, against damage.
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

}  // namespace weightmap::cli::snapshot
