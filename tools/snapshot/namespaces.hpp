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
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// The id that a command gets. Below are this process and criu, also when the command is restored.
inline constexpr pid_t command_id = 1000;

// Makes a process in new namespaces of processes and mounts, which runs `work`, and returns its id
// here. It gets no signal at its end but SIGCHLD, and SIGKILL when this process ends.
Result<pid_t> run_in_namespaces(const std::function<void()>& work);

// Mounts /proc anew, a small folder in memory on `meeting_point`, and an empty /dev/shm, which only
// this namespace sees.
Result<void> mount_own(const std::filesystem::path& meeting_point);

// Has the next process get the id `next`.
Result<void> set_next_id(pid_t next);

// Writes a program for criu's --action-script into `folder`, and returns its path. It saves the
// files of /dev/shm, which are part of the image, while the dumped processes stand still, into the
// archive that the variable of this name has.
inline constexpr const char* archive_variable = "WEIGHTMAP_SHARED_MEMORY";
Result<std::filesystem::path> write_saving_script(const std::filesystem::path& folder);

// Returns the archive of an image, and the words that put its files back.
std::filesystem::path archive_in(const std::filesystem::path& image);
std::vector<std::string> unpacking_words(const std::filesystem::path& image);

}  // namespace weightmap::cli::snapshot
