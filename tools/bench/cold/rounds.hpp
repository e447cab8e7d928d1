// What fair rounds of measurements take: turns, memory as of a busy machine, and a line of
// progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace weightmap::cli::bench {

// Each round measures all contenders once, in a random order, so that none always follows the same
// one. The orders are the same in every run of the program.
class Turns {
 public:
  explicit Turns(std::size_t contenders);
  // Returns the contenders' indices in the order of the next round; valid until the next call.
  const std::vector<std::size_t>& next_round();

 private:
  std::vector<std::size_t> order_;
  std::mt19937 random_{7};
};

// Returns "[3 of 12, about 40 s left] what": by the time that the steps before took, if there are
// any.
std::string progress_text(std::size_t step, std::size_t steps, double seconds,
                          const std::string& what);

// Shows the progress on standard error; nothing if that is not a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::size_t steps);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows the current step. `what` is printable and short.
  void begin(const std::string& what);

 private:
  bool enabled_;
  std::size_t done_ = 0;
  std::size_t steps_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// A generous estimate of a process's memory besides its file, in bytes.
inline constexpr std::uint64_t process_memory = std::uint64_t{512} << 20;

// Touches and frees `bytes` of memory, at most half of what is free. A virtual machine may return
// free pages to its host; touching one then costs much more, for a random engine.
void recycle_memory(std::uint64_t bytes);

}  // namespace weightmap::cli::bench
