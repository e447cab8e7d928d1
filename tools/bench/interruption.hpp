// Ctrl-C while a benchmark has things to put back.
#pragma once

#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

inline constexpr int exit_interrupted = 130;

// Between its construction and destruction SIGINT and SIGTERM are noted instead of ending the
// program. One at a time.
class Interruptible {
 public:
  Interruptible() noexcept;
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

bool interrupted() noexcept;

// Fails once interrupted() is true.
Result<void> go_on();

}  // namespace weightmap::cli::bench
