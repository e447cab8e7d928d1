// The machine that a process was started on, as far as a process remembers it: C libraries, torch
// and its code generators choose code by the features of the processor once, at their first use.
#pragma once

#include <string>

namespace weightmap::cli::snapshot {

struct Machine {
  std::string kernel;     // release and version, of uname(2)
  std::string processor;  // its name, and a hash of all its features

  friend bool operator==(const Machine&, const Machine&) = default;
};

// Reads /proc/cpuinfo; without it the processor's features are unknown, and equal.
Machine this_machine();

}  // namespace weightmap::cli::snapshot
