// What goes on beside a command while it starts.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/readiness.hpp"
#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {

struct CompanionTask {
  std::optional<StartPlan> plan;              // of an earlier start
  std::vector<std::filesystem::path> models;  // whose weights are read after it
  std::string key;
  std::filesystem::path plan_path;  // of the plan, and of a new one; empty: there is no place
  bool is_plan_given = false;       // the path, by the user: what is there is not removed
  bool learns = false;              // makes a plan of this start
  Ready ready;
  std::filesystem::path timeline;    // where a picture of the start goes; empty: nowhere
  std::string program;               // the command's, for the picture
  bool speaks = false;               // to standard error
  std::vector<std::string> remarks;  // to be said with the rest
};

// Reads and learns until both are done, the command has ended, or memory is short. Calls `go_on`
// as soon as the command may begin.
void accompany(pid_t command, const CompanionTask& task, const std::function<void()>& go_on);

}  // namespace weightmap::cli::start
