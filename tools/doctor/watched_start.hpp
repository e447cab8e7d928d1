// Runs a command until its start is over, and watches it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/run/readiness.hpp"
#include "tools/run/start_timeline.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::doctor {

struct WatchedStart {
  start::StartTimeline timeline;
  std::optional<int> exit_status;  // 128 + the signal; nullopt if the command was ended here
};

// Runs the command in a process group of its own, with standard output joined to standard error.
// When its start is over, or if interrupted(), SIGTERM goes to the group, and SIGKILL if the command
// has not ended in ten seconds. Fails with io if it cannot be run or was interrupted.
Result<WatchedStart> watch_start(std::vector<std::string> command, start::Ready ready);

}  // namespace weightmap::cli::doctor
