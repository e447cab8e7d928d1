// Runs a command until its start is over, and watches it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/import_times.hpp"
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

struct WatchedImports {
  ImportTimes times;
  std::string python;  // the path of one that ran; empty if none was seen
  std::optional<int> exit_status;
};

// Does the same with interpreters that tell of their imports, which are taken out of standard
// error. A file of `ready` is removed before. Fails with io as well if `ready` holds before.
Result<WatchedImports> watch_imports(const std::vector<std::string>& command, start::Ready ready);

}  // namespace weightmap::cli::doctor
