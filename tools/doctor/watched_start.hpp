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

// Runs the command with standard output joined to standard error. When its start is over, or if
// interrupted(), it is ended. Fails with io if it cannot be run or was interrupted.
Result<WatchedStart> watch_start(const std::vector<std::string>& command, start::Ready ready);

}  // namespace weightmap::cli::doctor
