// Shows the progress of a benchmark on standard error; nothing if that is not a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace weightmap::cli::bench {

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
};

}  // namespace weightmap::cli::bench
