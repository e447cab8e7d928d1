// The processes that process 1 of a namespace makes: the command, and criu, which dumps or restores
// it. Each function returns in process 1 alone, with the id of what it has made.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "tools/snapshot/supervisor.hpp"

namespace weightmap::cli::snapshot {

// The pipes that a command writes to.
struct OutputPipes {
  int output;
  int error_output;
};

// The command, in a session of its own, with no other descriptors.
pid_t fork_command(const Supervision& what, OutputPipes pipes);
// criu dump, which runs `script` while the command stands still.
pid_t fork_dump(const Supervision& what, const Order& order, pid_t command, OutputPipes pipes,
                const std::filesystem::path& script);
// tar, which unpacks the image, and then, as the same process, criu restore, which runs `script`
// before the command goes on, and ends once it runs.
pid_t fork_restore(const Supervision& what, const Order& order, OutputPipes pipes,
                   const std::filesystem::path& script);

// Where criu writes what is wrong.
std::filesystem::path dump_log(const Supervision& what);
std::filesystem::path restore_log(const Supervision& what);

}  // namespace weightmap::cli::snapshot
