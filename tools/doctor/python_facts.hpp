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

// Returns the version of a Python that could import lazily (3.15) and does not, by its own word;
// empty for any other.
std::string lazy_version(const std::string& python);

}  // namespace weightmap::cli::doctor
