// Locks that a fork cannot leave locked.
//
// A forked child has only the thread that forked. A std::mutex that another thread held at that
// moment stays locked in the child for good, and the data that it protects may be half changed
// there. Here each lock remembers in which process it was taken: in the child a lock of the parent
// counts as free, and the next owner learns that the protected data was abandoned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace weightmap::os {

// The number of forks between this process and the one that first used this part of the library.
// Thread-related state remembers it and compares: a different number means that the threads belong
// to a parent and do not exist here. Counting starts at the first call of count_forks().
std::uint32_t fork_count() noexcept;
void count_forks() noexcept;

class ForkSafeMutex {
 public:
  ForkSafeMutex() noexcept { count_forks(); }

  // Holds the mutex during its lifetime.
  class Lock {
   public:
    explicit Lock(ForkSafeMutex& mutex) noexcept : mutex_(mutex), abandoned_(mutex.lock()) {}
    ~Lock() { mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    // True if a thread of the parent held it when this process was forked. Half-changed data may
    // only be replaced, neither read nor destroyed. Reported once in each child.
    bool was_abandoned() const noexcept { return abandoned_; }

   private:
    ForkSafeMutex& mutex_;
    const bool abandoned_;
  };

 private:
  bool lock() noexcept;
  void unlock() noexcept;

  // The number of forks at the last change, times four, plus the state. Any thread.
  std::atomic<std::uint32_t> word_{0};
};

// A value protected by such a mutex. If a thread of the parent was using it when this process was
// forked, the child gets a new value, and the old one is leaked. Must not be destroyed while
// another thread of the same process uses it.
template <class T>
class ForkSafe {
  static_assert(std::is_nothrow_default_constructible_v<T>);

 public:
  ForkSafe() noexcept : value_() {}
  ~ForkSafe() {
    const ForkSafeMutex::Lock lock(mutex_);
    if (!lock.was_abandoned()) std::destroy_at(&value_);
  }
  ForkSafe(const ForkSafe&) = delete;
  ForkSafe& operator=(const ForkSafe&) = delete;

  // Returns function(T&), called under the lock. It must not call this object.
  template <class Function>
  auto with(const Function& function) {
    const ForkSafeMutex::Lock lock(mutex_);
    if (lock.was_abandoned()) std::construct_at(&value_);
    return function(value_);
  }

 private:
  ForkSafeMutex mutex_;
  union {
    T value_;  // protected by the mutex
  };
};

}  // namespace weightmap::os
