// Whether a file has all that its own metadata says.
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/os/file/file.hpp"
#include "weightmap/error.hpp"
#include "weightmap/options.hpp"

namespace weightmap {

// Parses the metadata of one file as an open does, maps nothing, and returns what is wrong with it:
// that it is damaged or truncated, or, for a format without pickles, any reason for which an open
// refuses it. nullopt if nothing is wrong, or the file is of no format that is opened.
std::optional<Error> find_damage(const os::File& file, const std::filesystem::path& path,
                                 const OpenOptions& options);

}  // namespace weightmap
