#include "runtime/system/process/fork_safe.hpp"

#include <pthread.h>

namespace weightmap::os {
namespace {

constinit std::atomic<std::uint32_t> forks{0};
constinit std::atomic<bool> is_registered{false};

// The state of a mutex, in the lowest two bits of its word.
constexpr std::uint32_t state_bits = 3;
constexpr std::uint32_t unlocked = 0;
constexpr std::uint32_t locked = 1;
constexpr std::uint32_t waited_for = 2;  // locked, and a thread may be waiting

std::uint32_t word(std::uint32_t state) noexcept { return fork_count() << 2 | state; }

}  // namespace

std::uint32_t fork_count() noexcept { return forks.load(std::memory_order_relaxed); }

void count_forks() noexcept {
  if (is_registered.load(std::memory_order_acquire)) return;
  // Two concurrent registrations count each fork twice, which is a different number as well.
  static_cast<void>(::pthread_atfork(nullptr, nullptr, [] { ++forks; }));
  is_registered.store(true, std::memory_order_release);
}

bool ForkSafeMutex::lock() noexcept {
  // A thread that has waited cannot know whether others still wait.
  std::uint32_t taken = word(locked);
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  for (;;) {
    const bool is_foreign = (seen & ~state_bits) != word(unlocked);
    if (is_foreign || (seen & state_bits) == unlocked) {
      if (word_.compare_exchange_weak(seen, taken, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return is_foreign && (seen & state_bits) != unlocked;
    } else if ((seen & state_bits) == waited_for ||
               word_.compare_exchange_weak(seen, word(waited_for), std::memory_order_relaxed)) {
      word_.wait(word(waited_for), std::memory_order_relaxed);
      taken = word(waited_for);
      seen = word_.load(std::memory_order_relaxed);
    }
  }
}

void ForkSafeMutex::unlock() noexcept {
  const std::uint32_t before = word_.exchange(word(unlocked), std::memory_order_release);
  if ((before & state_bits) == waited_for) word_.notify_one();
}

}  // namespace weightmap::os
