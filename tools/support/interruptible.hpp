// Lets commands run until the user stops them, and clean up then.
#pragma once

#include <chrono>
#include <csignal>

#include "weightmap/result.hpp"

namespace weightmap::cli {

inline constexpr int exit_interrupted = 130;

// During its lifetime, SIGINT and SIGTERM are recorded instead of ending the program, and interrupt
// blocking system calls. One object at a time.
class Interruptible {
 public:
  Interruptible() noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // Sleeps until the time is over or a signal comes.
  void sleep_for(std::chrono::nanoseconds time) const noexcept;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

// Returns true if a signal was recorded.
bool interrupted() noexcept;

// Fails once interrupted() is true.
Result<void> go_on();

}  // namespace weightmap::cli
