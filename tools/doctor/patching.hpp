// Checks whether WEIGHTMAP_PATCH reaches the programs of a Python.
#pragma once

#include <string>

#include "tools/doctor/findings.hpp"

namespace weightmap::cli::doctor {

// Starts this Python and asks it for its imports.
Finding patching(const std::string& python);

}  // namespace weightmap::cli::doctor
