// Suggests paths for one that does not exist, or for a folder of several files.
#pragma once

#include <string>

#include "weightmap/error.hpp"

namespace weightmap::cli {

// Returns `; did you mean "out.pt"?` for a missing file, and for a folder that is not a checkpoint
// but contains possible ones. `path` is the user's. Empty if there is no suggestion.
std::string path_hint(const Error& error, const std::string& path);

}  // namespace weightmap::cli
