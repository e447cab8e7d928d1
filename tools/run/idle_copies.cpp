#include "tools/run/idle_copies.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "runtime/system/facilities.hpp"

namespace weightmap::cli::start {
namespace {

constexpr unsigned most_copiers = 2;
constexpr std::size_t most_waiting = 64;                       // whose files are open
constexpr std::size_t copied_at_once = std::size_t{64} << 10;  // stays in a processor's cache

bool runs_when_idle() noexcept {
  const sched_param none{};
  return ::sched_setscheduler(0, SCHED_IDLE, &none) == 0;  // of this thread
}

}  // namespace

IdleCopies::IdleCopies() {
  if (!os::host_takes_back_free_memory()) return;
  try {
    while (threads_.size() < std::min(most_copiers, std::thread::hardware_concurrency()))
      threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // those that are there do all
  }
}

IdleCopies::~IdleCopies() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void IdleCopies::add(std::shared_ptr<const os::File> file, const ByteRange& part) {
  if (threads_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (waiting_.size() == most_waiting) return;
  waiting_.push_back({std::move(file), part});
  changed_.notify_one();
}

void IdleCopies::work() {
  if (!runs_when_idle()) return;
  std::vector<char> scratch(copied_at_once);
  for (Part part = next(); part.file != nullptr; part = next()) {
    const std::uint64_t end = part.range.offset + part.range.length;
    for (std::uint64_t at = part.range.offset; at < end; at += copied_at_once)
      static_cast<void>(::pread(part.file->descriptor(), scratch.data(),
                                std::min<std::uint64_t>(copied_at_once, end - at),
                                static_cast<off_t>(at)));
  }
}

// No file: there is nothing to come.
IdleCopies::Part IdleCopies::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
  if (ends_) return {};
  Part part = std::move(waiting_.front());
  waiting_.pop_front();
  return part;
}

}  // namespace weightmap::cli::start
