// The environment that a process was started with, remembered as hashes.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace weightmap::cli::snapshot {

// The hash of the text of each variable.
using HashedEnvironment = std::map<std::string, std::string>;

// Leaves out what differs between two starts of the same service: variables that shells, terminals,
// sessions and service managers set; and what the command reads afterwards only, by these names.
HashedEnvironment hashed_environment(const char* const* environment,
                                     const std::vector<std::string>& new_variables);

// Returns a sentence that names the first variable that differs; empty if there is none.
std::string first_difference(const HashedEnvironment& then, const HashedEnvironment& now);

}  // namespace weightmap::cli::snapshot
