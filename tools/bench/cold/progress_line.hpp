// Shows the progress of a benchmark on standard error; nothing if that is not a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace weightmap::cli::bench {

// Returns "[3 of 12, about 40 s left] what": by the time that the steps before took, if there are
// any.
std::string progress_text(std::size_t step, std::size_t steps, double seconds,
                          const std::string& what);

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

}  // namespace weightmap::cli::bench
