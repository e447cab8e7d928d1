// The one way to put the name of a file on an error.
#pragma once

#include <filesystem>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap {

// A path as errors show it: escaped, and cut where it is very long.
std::string shown_name(const std::filesystem::path& path);

// `error` with the path that it is about, unless it names a file already.
tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path);
// The same for a name that is escaped already.
tl::unexpected<Error> about_shown(Error error, const std::string& name);

}  // namespace weightmap
