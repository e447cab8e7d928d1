// Says that a start is being learned, so that the next one, right behind it, waits for its plan.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// A file beside the plan, with the command's id, that is locked as long as this lives.
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
