#include "tools/run/idle_copies.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "runtime/system/facilities.hpp"
#include "runtime/system/process/processor_quota.hpp"

namespace weightmap::cli::start {
namespace {

constexpr unsigned most_copiers = 2;
constexpr std::size_t most_files = 64;                         // that are open for copies
constexpr std::size_t copied_at_once = std::size_t{64} << 10;  // stays in a processor's cache

bool runs_when_idle() noexcept {
  const sched_param none{};
  return ::sched_setscheduler(0, SCHED_IDLE, &none) == 0;  // of this thread
}

}  // namespace

IdleCopies::IdleCopies() {
  if (!os::host_takes_back_free_memory() || os::has_processor_quota()) return;
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

void IdleCopies::add(const std::shared_ptr<const os::File>& file, const ByteRange& part) {
  if (threads_.empty()) return;
  const std::lock_guard lock(mutex_);
  auto of_file = std::ranges::find(waiting_, file, &Waiting::file);
  if (of_file == waiting_.end()) {
    if (waiting_.size() == most_files) return;
    of_file = waiting_.insert(of_file, Waiting{file, {}});
  }
  of_file->parts.push_back(part);
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
  Waiting& first = waiting_.front();
  Part part{first.file, first.parts.front()};
  first.parts.pop_front();
  if (first.parts.empty()) waiting_.pop_front();
  return part;
}

}  // namespace weightmap::cli::start
