// Locks that a fork cannot leave locked.
//
// A forked child has only the thread that forked. A std::mutex that another thread held at that
// moment stays locked in the child for good, and what it guards may be half changed there. Here
// each lock remembers in which process it was taken: in the child a lock of the parent counts as
// free, and whoever takes it is told that what it guards was abandoned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace weightmap::os {

// How many forks lie between this process and the one that first used this part of the library.
// Whatever belongs to threads remembers it and compares: another number means that the threads are
// those of a parent and do not exist here. Forks are counted from the first call of count_forks().
std::uint32_t fork_count() noexcept;
void count_forks() noexcept;

class ForkSafeMutex {
 public:
  ForkSafeMutex() noexcept { count_forks(); }

  // Holds the mutex while it lives.
  class Lock {
   public:
    explicit Lock(ForkSafeMutex& mutex) noexcept : mutex_(mutex), abandoned_(mutex.lock()) {}
    ~Lock() { mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    // A thread of the parent held it when this process was forked. What it guards may be half
    // changed: it may be neither read nor destroyed, only replaced. Said once in each child.
    bool was_abandoned() const noexcept { return abandoned_; }

   private:
    ForkSafeMutex& mutex_;
    const bool abandoned_;
  };

 private:
  bool lock() noexcept;
  void unlock() noexcept;

  // The number of forks when it was last changed, times four, and how it is held. Any thread.
  std::atomic<std::uint32_t> word_{0};
};

// A value under such a mutex. Where a thread of the parent was at it when this process was forked,
// the child has a new value instead, and what the old one owned is leaked. Must not be destroyed
// while another thread of the same process uses it.
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

  // What function(T&) answers, under the lock. It must not come back here.
  template <class Function>
  auto with(const Function& function) {
    const ForkSafeMutex::Lock lock(mutex_);
    if (lock.was_abandoned()) std::construct_at(&value_);
    return function(value_);
  }

 private:
  ForkSafeMutex mutex_;
  union {
    T value_;  // under the mutex
  };
};

}  // namespace weightmap::os
