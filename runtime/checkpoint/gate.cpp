#include "runtime/checkpoint/gate.hpp"

#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/process/futex.hpp"

namespace weightmap {
namespace {

using Clock = std::chrono::steady_clock;

// The value without marks in this process.
std::uint64_t none() noexcept { return std::uint64_t{os::fork_count()} << 32; }

// True for marks of this process; others count as none.
bool are_own(std::uint64_t marks) noexcept { return marks >> 32 == os::fork_count(); }

}  // namespace

Gate::Gate(std::chrono::nanoseconds longest) noexcept : longest_(longest) { os::count_forks(); }

void Gate::raise() noexcept {
  std::uint64_t marks = marks_;
  while (!marks_.compare_exchange_weak(marks, (are_own(marks) ? marks : none()) + 1)) {
  }
}

void Gate::lower() noexcept {
  if (--marks_ == none()) wake();
}

bool Gate::is_demanded() const noexcept {
  const std::uint64_t marks = marks_;
  return are_own(marks) && marks != none();
}

void Gate::wake() noexcept {
  ++changes_;
  os::wake_all(changes_);
}

bool Gate::give_way(const std::atomic<bool>& cancelled) noexcept {
  const Clock::time_point end = Clock::now() + longest_;
  for (bool has_waited = false;; has_waited = true) {
    const std::uint32_t seen = changes_;  // read before the checks, so that no change is missed
    if (cancelled || !is_demanded()) return has_waited;
    const Clock::time_point now = Clock::now();
    if (now >= end) return has_waited;
    os::wait_while(changes_, seen, end - now);
  }
}

}  // namespace weightmap
