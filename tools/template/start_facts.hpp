// What a start begins with, and what must be the same for a fork of an earlier one to stand for it:
// a fork has all of it from the process that it was made of.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/snapshot/surroundings.hpp"

namespace weightmap::cli::templates {

struct StartFacts {
  // Of the process, by the names of /proc/PID/status and others: users, capabilities, processors,
  // masks, limits, cgroup, namespaces, folders.
  std::map<std::string, std::string> attributes;
  snapshot::HashedEnvironment environment;
  std::vector<snapshot::NamedLink> links;
};

// Those of this process, for a command of these words.
StartFacts facts_of_this(const std::vector<std::string>& words);

// Returns a sentence that names the first difference; empty if there is none. `new_variables` may
// differ.
std::string first_difference(const StartFacts& then, const StartFacts& now,
                             const std::vector<std::string>& new_variables);

// Returns a sentence about what only a command of its own would have of this process: other open
// files than the three standard streams. Empty if there is nothing.
std::string beyond_standard_streams();

}  // namespace weightmap::cli::templates
