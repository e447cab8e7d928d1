#include "runtime/services/warm/warm_election.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "mmap/pages/page_cache.hpp"

namespace weightmap {
namespace {

// A reader takes about the first of these for a step.
constexpr std::chrono::milliseconds first_wait{1};
constexpr std::chrono::milliseconds longest_wait{20};

constexpr const char* lock_prefix = "warm-";

}  // namespace

WarmElection::WarmElection(const Sources& sources, const mmap::Mapping& mapping,
                           std::span<const ByteRange> steps, std::chrono::milliseconds patience)
    : sources_(sources),
      mapping_(mapping),
      steps_(steps),
      lock_name_(lock_prefix + os::key_of(sources.front().file.generation()) + ".lock"),
      patience_(patience) {
  was_cached_.reserve(steps.size());
  for (const ByteRange& step : steps) was_cached_.push_back(is_cached(step));
  // If the system hides cached pages, a follower cannot wait for them.
  for (const SourceFile& source : sources) {
    const Result<void> told = mmap::check_tells_what_is_cached(source.file);
    if (told) continue;
    report_.why_alone = told.error().message;
    return;
  }
  Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (directory)
    directory_ = std::move(*directory);
  else
    report_.why_alone = directory.error().message;
}

WarmElection::Turn WarmElection::wait_for(std::size_t step, const std::atomic<bool>& cancelled) {
  bool has_waited = false;
  give_sign_of_life();
  for (std::chrono::milliseconds wait = first_wait; !cancelled;
       wait = std::min(wait * 3 / 2 + first_wait, longest_wait)) {
    if (is_cached(steps_[step])) {
      count(step);
      return Turn::map;
    }
    if (may_read(has_waited)) {
      count(step);
      return Turn::read;
    }
    has_waited = true;
    std::this_thread::sleep_for(wait);
  }
  return Turn::stop;
}

bool WarmElection::is_cached(const ByteRange& step) const {
  const SourceFile& source = sources_.at(step.offset);
  return mmap::is_cached(source.in(mapping_), step.offset - source.base(), step.length);
}

// The reader finds cached what the system has read ahead for it.
void WarmElection::count(std::size_t step) {
  if (was_cached_[step]) return;
  const std::lock_guard guard(mutex_);
  const bool reads = lock_ || !report_.why_alone.empty();
  (reads ? report_.bytes_read : report_.bytes_waited_for) += steps_[step].length;
}

bool WarmElection::may_read(bool has_waited) {
  const std::lock_guard guard(mutex_);
  if (lock_ || !report_.why_alone.empty()) return true;
  Result<std::optional<os::ProcessLock>> lock = os::ProcessLock::try_lock(*directory_, lock_name_);
  if (!lock) {
    report_.why_alone = lock.error().message;
    return true;
  }
  if (!*lock) return is_reader_silent();
  lock_.emplace(std::move(**lock));
  report_.was_reader = true;
  if (has_waited) ++report_.takeovers;
  os::remove_left_locks(*directory_, lock_prefix);  // of files that may never be opened again
  return true;
}

void WarmElection::give_sign_of_life() {
  const std::lock_guard guard(mutex_);
  if (lock_) lock_->give_sign_of_life();
}

bool WarmElection::is_reader_silent() {
  const auto now = std::chrono::steady_clock::now();
  const std::int64_t sign = os::last_sign_of_life(*directory_, lock_name_);
  if (sign != last_sign_) {
    last_sign_ = sign;
    sign_seen_ = now;
    return false;
  }
  if (now - sign_seen_ < patience_) return false;
  report_.why_alone = "the process that reads for all has given no sign of life for " +
                      std::to_string(patience_.count()) + " ms";
  return true;
}

void WarmElection::resign() {
  const std::lock_guard guard(mutex_);
  lock_.reset();
}

WarmElection::Report WarmElection::report() const {
  const std::lock_guard guard(mutex_);
  return report_;
}

}  // namespace weightmap
