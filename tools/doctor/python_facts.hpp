// What a Python says of itself.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/findings.hpp"

namespace weightmap::cli::doctor {

// Checks whether WEIGHTMAP_PATCH reaches the programs of a Python: starts it and asks it for its
// imports.
Finding patching(const std::string& python);

// Checks how weightmap makes tensors with the torch of a Python: starts it and asks its weightmap.
// Nothing if it has no weightmap or no torch.
std::optional<Finding> torch_way(const std::string& python);

}  // namespace weightmap::cli::doctor
