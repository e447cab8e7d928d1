// The UNIX sockets of a command that have a name in a file system.
//
// criu gives a restored socket its name again, and takes it from a process that has it. It refuses
// where the folder of the name is gone.
#pragma once

#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"

namespace weightmap::cli::snapshot {

// Returns the absolute names of the processes' sockets, but for those in /dev/shm, which is part of
// an image.
std::vector<std::string> socket_files_of(const start::ProcessTree& processes);

// Returns the first of the files whose socket a process has; empty if there is none.
std::string first_used(const std::vector<std::string>& files);

}  // namespace weightmap::cli::snapshot
