// Texts that the file system keeps with a file (extended attributes).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace weightmap::os {

// Names begin with "user.". Returns false if the file system or the system refuses.
bool set_attribute(int descriptor, const std::string& name, const std::string& text) noexcept;

// Returns nullopt if there is no such file or attribute, or none that could be read.
std::optional<std::string> attribute_of(const std::filesystem::path& path, const std::string& name);

}  // namespace weightmap::os
