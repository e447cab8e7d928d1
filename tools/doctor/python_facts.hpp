// What a Python says of itself.
#pragma once

#include <optional>
#include <set>
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

// Returns those of these packages of a Python of which most modules have no bytecode, so that each
// start compiles what it imports of them, with commas. Asks for plain names only.
std::string packages_without_bytecode(const std::string& python,
                                      const std::set<std::string>& packages);

}  // namespace weightmap::cli::doctor
