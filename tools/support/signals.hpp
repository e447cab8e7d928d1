// Signals: of writes that fail, which this program takes as errors, and of a user who stops it.
#pragma once

#include <chrono>
#include <csignal>

#include "weightmap/result.hpp"

namespace weightmap::cli {

// Ignores SIGPIPE and SIGXFSZ: a reader that leaves (| head) then causes EPIPE, which Output treats
// as the end of the work, and a file beyond RLIMIT_FSIZE is an error of the write.
void ignore_write_signals() noexcept;

// Gives them the meaning that they had before, for a program that takes this one's place.
void restore_write_signals() noexcept;

inline constexpr int exit_interrupted = 130;

// Lets a command clean up: during its lifetime, SIGINT and SIGTERM are recorded instead of ending
// the program, and interrupt blocking system calls. One object at a time.
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
