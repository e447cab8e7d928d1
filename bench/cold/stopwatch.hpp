// What a sample measures in its own process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// What a fresh process says before it begins to measure, and what it then waits for: the state of
// the file and of the memory is prepared between the two.
inline constexpr std::string_view ready_line = "ready";
inline constexpr std::string_view go_line = "go";

// What this process has cost so far.
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
  Stopwatch();  // begins

  void opened() noexcept { sample_.open_ms = milliseconds(); }
  void read_first_byte() noexcept { sample_.first_byte_ms = milliseconds(); }
  void read_first_tensor() noexcept { sample_.first_tensor_ms = milliseconds(); }
  void read_all() noexcept { sample_.all_ms = milliseconds(); }

  // Ends the sample, after everything that was started has been waited for.
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
