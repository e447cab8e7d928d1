// Commands that go on until the user stops them, or put something back when they are stopped.
#pragma once

#include <chrono>
#include <csignal>

#include "weightmap/result.hpp"

namespace weightmap::cli {

inline constexpr int exit_interrupted = 130;

// Between its construction and destruction, SIGINT and SIGTERM are noted instead of ending the
// program, and end system calls that wait. One at a time.
class Interruptible {
 public:
  Interruptible() noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // Until the time is over or a signal comes.
  void sleep_for(std::chrono::nanoseconds time) const noexcept;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

// Whether a signal was noted.
bool interrupted() noexcept;

// Fails once interrupted() is true.
Result<void> go_on();

}  // namespace weightmap::cli
