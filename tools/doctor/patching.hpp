// Whether WEIGHTMAP_PATCH reaches the programs of a Python.
#pragma once

#include <string>

#include "tools/doctor/findings.hpp"

namespace weightmap::cli::doctor {

// Starts it, so that it says itself what it has imported by then.
Finding patching(const std::string& python);

}  // namespace weightmap::cli::doctor
