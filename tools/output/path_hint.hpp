// Suggests paths for one that does not exist.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli {

// Returns `; did you mean "out.pt"?` for a missing file. `path` is the user's. Empty if there is no
// suggestion.
std::string path_hint(const Error& error, const std::string& path);

}  // namespace weightmap::cli
