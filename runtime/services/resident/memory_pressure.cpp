#include "runtime/services/resident/memory_pressure.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap {
namespace {

constexpr std::chrono::milliseconds between_looks{250};
// Of the last ten seconds, in percent: some process could not go on since memory had to be found.
constexpr double too_much_waiting = 10;

}  // namespace

// A sixteenth of what can be had stays free, for page tables and for what others need at once.
std::uint64_t MemoryPressure::budget_within(std::uint64_t available, double waiting,
                                            std::uint64_t used, std::uint64_t needed) noexcept {
  const std::uint64_t all = used + available;
  const std::uint64_t budget = all - all / 16;
  if (waiting < too_much_waiting) return budget;
  return std::min(budget, std::max(used - used / 64, needed));
}

std::uint64_t MemoryPressure::budget_for(std::uint64_t used, std::uint64_t needed,
                                         const std::filesystem::path& root) noexcept {
  const os::MemoryLimit limit = os::memory_limit(root);
  if (limit.available == os::MemoryLimit::unknown) return os::MemoryLimit::unknown;
  return budget_within(limit.available, os::memory_waiting(root), used, needed);
}

MemoryPressure::~MemoryPressure() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> MemoryPressure::start() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return tl::unexpected<Error>(
        os::os_error("start a thread that follows memory", error.code().value()));
  }
  return {};
}

void MemoryPressure::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, between_looks, [this] { return is_stopped_; })) {
    lock.unlock();
    try {
      look_();
    } catch (const std::bad_alloc&) {  // the next look may have some
    }
    lock.lock();
  }
}

}  // namespace weightmap
