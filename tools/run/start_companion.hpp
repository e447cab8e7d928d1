// What goes on beside a command while it starts.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/run/opened_files.hpp"
#include "tools/run/process_tree.hpp"
#include "tools/run/readiness.hpp"
#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {

// A start that is over, as a snapshot of it needs it.
struct FinishedStart {
  const ProcessTree& processes;
  const StartPlan& plan;
  std::set<std::string> paths;          // of files that it has opened
  std::string unseen;                   // why these are not all; empty: they are
  const std::set<FileNumber>& written;  // by itself
  std::int64_t began_ns;                // since 1970
};

// Of a start from a snapshot: when the image had been checked, and when it was restored. 0: not
// yet.
struct RestoreProgress {
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> checked{0}, restored{0};
};

struct CompanionTask {
  std::optional<StartPlan> plan;              // of an earlier start
  std::vector<std::filesystem::path> models;  // whose weights are read after it
  std::string key;
  std::filesystem::path plan_path;  // of the plan, and of a new one; empty: there is no place
  bool is_plan_given = false;       // the path, by the user: what is there is not removed
  bool learns = false;              // makes a plan of this start
  Ready ready;
  std::filesystem::path timeline;            // where a picture of the start goes; empty: nowhere
  std::string program;                       // the command's, for the picture
  bool speaks = false;                       // to standard error
  std::vector<std::string> remarks;          // to be said with the rest
  const RestoreProgress* restore = nullptr;  // of a start from a snapshot
  // What is done as soon as the start is over, where it is learned, and a file by which the command
  // itself says so; empty: nothing, none. The command has a namespace of mounts of its own then.
  std::function<void(const FinishedStart&)> when_over;
  std::filesystem::path over_file;
};

// Reads and learns until both are done, the command has ended, or memory is short. Calls `go_on`
// as soon as the command may begin.
void accompany(pid_t command, const CompanionTask& task, const std::function<void()>& go_on);

}  // namespace weightmap::cli::start
