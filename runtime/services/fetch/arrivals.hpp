// What has come of ranges and is not kept yet: put in by the thread that receives, taken out by the
// one that keeps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "weightmap/remote.hpp"

namespace weightmap {

// A part of a range, which is kept while the rest is on its way; or the last part.
struct Arrival {
  RangeRequest part;
  RangeRequest whole;
  bool is_last;
};

class Arrivals {
 public:
  void add(Arrival arrival) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(arrival);
    changed_.notify_all();
  }
  // No more will be added.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

  // Blocks until there is one, and keeps this busy until kept(); nullopt once it is closed and
  // empty.
  std::optional<Arrival> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return std::nullopt;
    const Arrival first = waiting_.front();
    waiting_.pop_front();
    is_one_taken_ = true;
    return first;
  }
  void kept() {
    const std::lock_guard lock(mutex_);
    is_one_taken_ = false;
    changed_.notify_all();
  }
  // True if the next take() would wait.
  bool would_wait() const {
    const std::lock_guard lock(mutex_);
    return waiting_.empty() && !is_closed_;
  }

  // Waits so long at most. True if all are kept.
  bool wait_until_kept(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [this] { return !is_busy(); });
  }
  // Waits so long at most for the next one to be kept. False if there is none.
  bool wait_for_one(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    if (!is_busy()) return false;
    changed_.wait_for(lock, most);
    return true;
  }

 private:
  bool is_busy() const noexcept { return is_one_taken_ || !waiting_.empty(); }

  mutable std::mutex mutex_;  // protects the following members
  std::condition_variable changed_;
  std::deque<Arrival> waiting_;
  bool is_one_taken_ = false;
  bool is_closed_ = false;
};

}  // namespace weightmap
