// Commands that go on until the user stops them.
#pragma once

#include <chrono>

namespace weightmap::cli {

// Between its construction and destruction, SIGINT and SIGTERM end what the command does, not the
// program. One at a time.
class Interruptible {
 public:
  Interruptible() noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  bool interrupted() const noexcept;
  // Until the time is over or a signal comes.
  void sleep_for(std::chrono::nanoseconds time) const noexcept;

 private:
  void (*old_int_)(int);
  void (*old_term_)(int);
};

}  // namespace weightmap::cli
