// What torch.save calls the top folder of an archive.
#pragma once

#include <filesystem>
#include <string>

namespace weightmap {

// `given`, unless it is empty; else by the name of the file, "archive" for an empty path.
std::string archive_name(const std::filesystem::path& path, const std::string& given);

}  // namespace weightmap
