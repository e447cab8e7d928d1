// The measurements of a sample in its own process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

// A fresh process writes the first line before it begins to measure, and then waits for the second;
// the state of file and memory is prepared in between.
inline constexpr std::string_view ready_line = "ready";
inline constexpr std::string_view go_line = "go";

// The resources that this process has used so far.
struct Usage {
  std::uint64_t disk_bytes = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t file_bytes = 0;

  static Usage now();
};

class Stopwatch {
 public:
  Stopwatch();  // starts

  void opened() noexcept { sample_.open_ms = milliseconds(); }
  void read_first_byte() noexcept { sample_.first_byte_ms = milliseconds(); }
  void read_first_tensor() noexcept { sample_.first_tensor_ms = milliseconds(); }
  void read_all() noexcept { sample_.all_ms = milliseconds(); }

  // Ends the sample, after all background work has finished.
  Sample stop();

 private:
  using Clock = std::chrono::steady_clock;
  double milliseconds() const noexcept {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

  Sample sample_;
  Usage before_;
  Clock::time_point start_;
};

}  // namespace weightmap::cli::bench
