// Small files that appear under their name only once they are complete.
#pragma once

#include <filesystem>
#include <string_view>

#include "mmap/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Writes `content` to a new file in the folder of `path` and renames it. Fails with
// invalid_argument, and changes nothing, if `path` is `kept` or is there and no regular file; with
// io if the system refuses, and then leaves no new file behind.
Result<void> replace_file(const std::filesystem::path& path, std::string_view content,
                          const File& kept);

}  // namespace weightmap::os
