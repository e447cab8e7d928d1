// The namespaces in which a command with a snapshot runs. In a namespace of processes of its own
// the ids that an image has are free, however many processes were restored from it. criu itself
// gives what it restores a namespace of clocks, in which CLOCK_MONOTONIC and CLOCK_BOOTTIME go on
// from the dump.
//
// For process 1 of such a namespace. All functions fail with io, naming the call.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// The id that a command gets. Below are this process and criu, also when the command is restored.
inline constexpr pid_t command_id = 1000;

// Makes a process in new namespaces of processes and mounts, which runs `work`, and returns its id
// here. It gets no signal at its end but SIGCHLD, and SIGKILL when this process ends.
Result<pid_t> run_in_namespaces(const std::function<void()>& work);

// Mounts /proc anew, and a small folder in memory on `meeting_point`, which only this namespace
// sees.
Result<void> mount_own(const std::filesystem::path& meeting_point);

// Has the next process get the id `next`.
Result<void> set_next_id(pid_t next);

}  // namespace weightmap::cli::snapshot
