// What is mounted in the namespace of a process.
#pragma once

#include <sys/types.h>

#include <vector>

#include "runtime/system/file/mount.hpp"

namespace weightmap::cli::start {

// Those with files that someone has written; the kernel makes up those of /proc and its like.
// Empty for a process that has ended.
std::vector<os::Mount> mounts_with_files(pid_t process);

}  // namespace weightmap::cli::start
