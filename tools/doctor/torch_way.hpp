// Checks how weightmap makes tensors with the torch of a Python.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/findings.hpp"

namespace weightmap::cli::doctor {

// Starts this Python and asks its weightmap. Nothing if it has no weightmap or no torch.
std::optional<Finding> torch_way(const std::string& python);

}  // namespace weightmap::cli::doctor
