#include "python/src/long_call.hpp"

#include <chrono>
#include <thread>

namespace weightmap::python {

namespace nb = nanobind;

Progress progress_of(std::shared_ptr<Watched> watched) {
  return [watched = std::move(watched)](std::uint64_t done, std::uint64_t all) {
    watched->all = all;
    watched->done = done;
    return !watched->stopped;
  };
}

void LongCall::run_and_watch(const std::function<void()>& work) {
  std::thread worker([&] {
    try {
      work();
    } catch (...) {
      failed_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    ended_.notify_one();
  });
  const auto join = [&] {
    const nb::gil_scoped_release release;
    worker.join();
  };
  try {
    watch();
  } catch (...) {
    watched_->stopped = true;
    join();
    throw;
  }
  join();
  if (failed_) std::rethrow_exception(failed_);
  tell();
}

void LongCall::watch() {
  for (;;) {
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, std::chrono::milliseconds(50), [this] { return has_ended_; }))
        return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    tell();
  }
}

// Only what is new: a call that has not begun to read, or is stuck, says nothing.
void LongCall::tell() {
  const std::uint64_t all = watched_->all;
  const std::uint64_t done = watched_->done;
  if (told_.is_none() || done == last_told_) return;
  last_told_ = done;
  told_(done, all);
}

}  // namespace weightmap::python
