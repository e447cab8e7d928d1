// torch.save's name for the top folder of an archive.
#pragma once

#include <filesystem>
#include <string>

namespace weightmap {

// Returns `given` unless it is empty; otherwise the file's stem, "archive" for an empty path.
std::string archive_name(const std::filesystem::path& path, const std::string& given);

}  // namespace weightmap
