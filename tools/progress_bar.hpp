// A bar on standard error while something long goes on; nothing at all where that is no terminal.
#pragma once

#include <chrono>
#include <cstdint>

namespace weightmap::cli {

class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // wipes the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second.
  void update(std::uint64_t done, std::uint64_t all);

 private:
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace weightmap::cli
