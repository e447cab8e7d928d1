// What is to go on beside a start: found from the command's words, its environment and the plans.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tools/run/start_companion.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

struct StartOptions {
  std::vector<std::string> models;  // given by the user; otherwise those that the command names
  std::string ready;                // for parse_ready(); empty: a disk that is still
  std::string plan;                 // where it is kept; empty: in the folder of plans
  std::string timeline;             // where the start is drawn; empty: nowhere
  bool learns = true;               // makes a plan where there is none
  bool learns_anew = false;
  bool speaks = false;
};

// A command whose first word is its program. The words must outlive it.
struct StartCommand {
  std::filesystem::path program;  // absolute
  std::span<const std::string> words;

  std::string key() const;
};

// Returns the path of what `name` gives: a file or folder, or a model in the hub's cache; empty if
// there is neither.
std::filesystem::path given_model(const std::string& name);

Result<std::filesystem::path> plan_path_of(const StartOptions& options, const std::string& key);

// Finds out which mounts of the models drop what is cached at each open. For the time before the
// command has anything open, since this does the same.
void probe_mounts(const StartOptions& options, const StartCommand& command);

// Never fails: what is wrong with a plan or a model is a remark of the task.
CompanionTask task_for(const StartOptions& options, const StartCommand& command,
                       const Result<std::filesystem::path>& plan_path);

}  // namespace weightmap::cli::start
