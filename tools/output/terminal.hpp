// The terminal: where standard output goes, and a progress bar on standard error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::cli {

// Returns the columns of the terminal, or 80 without one.
std::size_t terminal_width() noexcept;

// Invisible if standard error is not a terminal.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws bytes, rate and remaining time, at most ten times a second.
  void update(std::uint64_t done, std::uint64_t all);
  // Returns a Progress that draws. The bar must outlive the call.
  Progress follow() {
    return [this](std::uint64_t done, std::uint64_t all) {
      update(done, all);
      return true;
    };
  }

 private:
  bool enabled_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace weightmap::cli
