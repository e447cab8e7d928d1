// Adds the name of a file to an error.
#pragma once

#include <filesystem>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap {

// Returns a path for errors: escaped, and cut if it is very long.
std::string shown_name(const std::filesystem::path& path);

// Adds the path to `error`, unless it names a file already.
tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path);
// Does the same for an escaped name.
tl::unexpected<Error> about_shown(Error error, const std::string& name);

}  // namespace weightmap
