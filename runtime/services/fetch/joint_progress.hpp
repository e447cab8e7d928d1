// The progress of several fetches at a time, told as one by the thread that waits for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/go_on.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

class JointProgress {
 public:
  // `told` may be empty.
  JointProgress(std::size_t count, std::uint64_t all, const Progress& told)
      : done_(count), all_(all), told_(told) {}

  // What the fetch of this number calls, in whatever thread. Valid as long as this object.
  Progress of(std::size_t number) {
    return [this, number](std::uint64_t done, std::uint64_t) {
      done_[number] = done;
      return !is_stopped_;
    };
  }
  // Runs the work in another thread, and tells of it in this one.
  Result<void> run(const std::function<Result<void>()>& work) {
    if (!told_) return work();
    std::future<Result<void>> result;
    try {
      result = std::async(std::launch::async, work);
    } catch (const std::system_error& error) {
      return failure(ErrorCode::io, std::string("cannot start a thread: ") + error.what());
    }
    const Stop before_the_future_waits{is_stopped_};
    do {
      if (!told_(sum(), all_)) is_stopped_ = true;
    } while (result.wait_for(turn) != std::future_status::ready);
    Result<void> done = result.get();
    if (done) done = go_on(told_, sum(), all_);  // which none may have been told yet
    return done;
  }

 private:
  struct Stop {
    std::atomic<bool>& flag;
    ~Stop() { flag = true; }
  };
  static constexpr std::chrono::milliseconds turn{50};

  std::uint64_t sum() const {
    std::uint64_t bytes = 0;
    for (const std::atomic<std::uint64_t>& each : done_) bytes += each;
    return bytes;
  }

  std::vector<std::atomic<std::uint64_t>> done_;
  const std::uint64_t all_;  // bytes
  const Progress& told_;
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace weightmap
