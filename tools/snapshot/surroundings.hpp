// What a command was started on and with, as far as its processes remember it: the machine, the
// environment, and where links led.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace weightmap::cli::snapshot {

// C libraries, torch and its code generators choose code by the features of the processor once, at
// their first use.
struct Machine {
  std::string kernel;     // release and version, of uname(2)
  std::string processor;  // its name, and a hash of all its features

  friend bool operator==(const Machine&, const Machine&) = default;
};

// Reads /proc/cpuinfo; without it the processor's features are unknown, and equal.
Machine this_machine();

// The hash of the text of each variable.
using HashedEnvironment = std::map<std::string, std::string>;

// Leaves out what differs between two starts of the same service: variables that shells, terminals,
// sessions and service managers set; and what the command reads afterwards only, by these names.
HashedEnvironment hashed_environment(const char* const* environment,
                                     const std::vector<std::string>& new_variables);

// Returns a sentence that names the first variable that differs; empty if there is none.
std::string first_difference(const HashedEnvironment& then, const HashedEnvironment& now);

// Symbolic links that a command's words and variables name, as `current` names a version of a
// model: another file behind the same name is another start.
struct NamedLink {
  std::string path, target;  // both absolute; no link is part of the target

  friend bool operator==(const NamedLink&, const NamedLink&) = default;
};

// Returns the paths among these words ("--model=PATH", too) and the texts of these variables that a
// link is part of.
std::vector<NamedLink> named_links(const std::vector<std::string>& words,
                                   const char* const* environment);

// Returns a sentence about the first link that leads elsewhere by now; empty if there is none.
std::string first_moved(const std::vector<NamedLink>& links);

}  // namespace weightmap::cli::snapshot
