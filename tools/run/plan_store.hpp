// Where plans of starts are kept, under which key, and whether one is being made.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tools/run/start_plan.hpp"
#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Returns a hash of a program's path and version, of its script, module or code if it is an
// interpreter, and of the variables that say where Python and the loader look for code. Other
// arguments are not part of it, since a port does not make another start, unless `all_words` is
// asked for.
enum class KeyOf : bool { code, all_words };
std::string start_key(const std::filesystem::path& program, std::span<const std::string> command,
                      KeyOf parts = KeyOf::code);

// Returns the file of a key in $WEIGHTMAP_START_DIR, else in $XDG_CACHE_HOME/weightmap/starts, else
// in ~/.cache/weightmap/starts. Fails with not_found if none of these is set.
Result<std::filesystem::path> plan_path(const std::string& key);

// Fails with not_found if there is none, and refuses a file that others than this user and root may
// write to, or that is larger than any plan.
Result<StartPlan> load_plan(const std::filesystem::path& path);

// Makes the folder, and replaces the plan atomically.
Result<void> save_plan(const StartPlan& plan, const std::filesystem::path& path);

// Says that a start is being learned, so that the next one, right behind it, waits for its plan: a
// file beside the plan, with the command's id, that is locked as long as this lives.
class LearningMark {
 public:
  LearningMark() = default;
  // Sets none where the folder cannot be made or written to, or another start is being learned.
  LearningMark(const std::filesystem::path& plan, pid_t command);
  LearningMark(LearningMark&& other) = default;
  LearningMark& operator=(LearningMark&& other) = default;
  ~LearningMark();

 private:
  std::filesystem::path path_;
  Descriptor file_;  // none: no mark is set
};

// Waits for the plan of a command that has ended, two seconds at most. While the command runs, its
// plan is not waited for.
void wait_until_learned(const std::filesystem::path& plan);

}  // namespace weightmap::cli::start
