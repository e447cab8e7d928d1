// Takes the samples of a timeline, a few a second.
//
// Opened files come from the system where it may be asked (opened_files.hpp), and elsewhere from
// /proc, where a file that is closed at once is missed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/run/opened_files.hpp"
#include "tools/run/process_tree.hpp"
#include "tools/run/start_timeline.hpp"

namespace weightmap::cli::start {

class StartRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  // Begins to watch. `places`: a path on each file system that the start may use.
  explicit StartRecorder(const std::vector<std::string>& places);

  // Takes one sample of processes whose tree was just updated.
  void look(ProcessTree& processes);
  const StartSample& last() const noexcept { return samples_.back(); }
  // Grows while the start goes on.
  std::uint64_t activity() const noexcept;
  // Returns what was recorded until a time, for a program's path.
  StartTimeline timeline(const std::string& program, Clock::time_point until, bool has_ended) const;

 private:
  void note(const std::string& path);
  void look_at_files(pid_t process);

  Clock::time_point began_ = Clock::now();
  OpenedFiles opened_;
  std::set<std::string> files_;
  std::map<pid_t, std::uint64_t> mapped_bytes_;  // at the last look at what is mapped
  bool has_other_weights_ = false;               // than those that are mapped as they are
  StartSample now_;
  std::vector<StartSample> samples_{StartSample{}};
};

}  // namespace weightmap::cli::start
