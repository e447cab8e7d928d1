// A mutex in memory that several processes may have mapped, which outlives an owner that dies.
#pragma once

#include <pthread.h>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Lies in the memory that it protects. Only begin() may be called before begin() was, by any
// process; it is never destroyed: the memory just ends.
class SharedMutex {
 public:
  enum class Users { process, processes };

  // Fails with io if the system refuses.
  Result<void> begin(Users users) noexcept;
  // Returns true if its last owner died with it: what it protects may be half changed.
  [[nodiscard]] bool lock() noexcept;
  void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace weightmap::os
