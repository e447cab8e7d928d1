// What a path may have been meant to be that leads to nothing, or to a folder of several files.
#pragma once

#include <string>

#include "weightmap/error.hpp"

namespace weightmap::cli {

// `; did you mean "out.pt"?` for a file that is not there, and for a folder that is no checkpoint
// which files in it may be one. `path` is as it was typed. Empty where there is nothing to say.
std::string path_hint(const Error& error, const std::string& path);

}  // namespace weightmap::cli
