#include "runtime/system/process/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weightmap::os {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                std::chrono::nanoseconds most) noexcept {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec time{static_cast<std::time_t>(seconds.count()),
                      static_cast<long>((most - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weightmap::os
