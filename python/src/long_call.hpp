// Calls that take long: Ctrl-C ends them, and a Python function is told how far they are.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "weightmap/result.hpp"

namespace weightmap::python {

// What a call tells the one who waits for it, and the other way round.
struct Watched {
  std::atomic<bool> stopped{false};
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> all{0};
};

// False once the call is to stop.
inline std::function<bool()> goes_on(std::shared_ptr<Watched> watched) {
  return [watched = std::move(watched)] { return !watched->stopped; };
}

// For the call; any thread may run it.
Progress progress_of(std::shared_ptr<Watched> watched);

class LongCall {
 public:
  // `told` is called as told(done, all), or None. `watched` is given where the call began before.
  explicit LongCall(nanobind::handle told = Py_None,
                    std::shared_ptr<Watched> watched = std::make_shared<Watched>()) noexcept
      : told_(told), watched_(std::move(watched)) {}

  Progress progress() const { return progress_of(watched_); }
  std::shared_ptr<Watched> watched() const { return watched_; }

  // Runs `work` in a thread of its own, without the GIL, while this one looks for signals and tells
  // of the progress, some twenty times a second. Raises what either of them raises, after `work`
  // has been told to stop and has ended.
  template <class Work>
  auto run(const Work& work) {
    using Answer = decltype(work());
    // Not in an optional: GCC 12 takes what a Result there is moved from for uninitialized.
    std::unique_ptr<Answer> answer;
    run_and_watch([&] { answer = std::make_unique<Answer>(work()); });
    return std::move(*answer);
  }

 private:
  void run_and_watch(const std::function<void()>& work);
  void watch();
  void tell();

  nanobind::handle told_;
  std::shared_ptr<Watched> watched_;
  std::uint64_t last_told_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;     // under the mutex
  std::exception_ptr failed_;  // written before has_ended_
};

}  // namespace weightmap::python
