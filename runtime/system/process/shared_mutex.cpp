#include "runtime/system/process/shared_mutex.hpp"

#include <cerrno>

#include "runtime/system/os_error.hpp"

namespace weightmap::os {

Result<void> SharedMutex::begin(Users users) noexcept {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  if (users == Users::processes) {
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  }
  const int refused = ::pthread_mutex_init(&mutex_, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (refused == 0) return {};
  return tl::unexpected<Error>(os_error("make a lock in shared memory", refused));
}

bool SharedMutex::lock() noexcept {
  if (::pthread_mutex_lock(&mutex_) != EOWNERDEAD) return false;
  ::pthread_mutex_consistent(&mutex_);
  return true;
}

}  // namespace weightmap::os
