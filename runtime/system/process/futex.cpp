#include "runtime/system/process/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weightmap::os {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

namespace {

int flag_of(Waiters waiters) noexcept {
  return waiters == Waiters::of_process ? FUTEX_PRIVATE_FLAG : 0;
}

}  // namespace

void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds most, Waiters waiters) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec time{static_cast<std::time_t>(seconds.count()),
                      static_cast<long>((most - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT | flag_of(waiters), seen, &time, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word, Waiters waiters) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | flag_of(waiters), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weightmap::os
