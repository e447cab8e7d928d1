#include "runtime/base/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

constexpr std::size_t most_threads = 8;
// Less work is not worth a thread, which costs 50 us, and the memory and caches of another core.
constexpr std::chrono::microseconds thread_work{500};

class Workers {
 public:
  Workers(std::size_t count, const NumberedWork& work) : work_(work), count_(count) {}

  void run_one_after_another() noexcept {
    for (std::size_t at = next_++; at < count_; at = next_++) run_one(at);
  }
  Result<void> result() {
    if (thrown_) std::rethrow_exception(thrown_);
    return std::move(failed_);
  }

 private:
  void run_one(std::size_t at) noexcept {
    try {
      Result<void> done = work_(at);
      if (done) return;
      next_ = count_;
      const std::scoped_lock lock(mutex_);
      if (at < failed_at_) {
        failed_at_ = at;
        failed_ = std::move(done);
      }
    } catch (...) {
      next_ = count_;
      const std::scoped_lock lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  const NumberedWork& work_;
  const std::size_t count_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;  // protects the following members
  std::size_t failed_at_ = ~std::size_t{0};
  Result<void> failed_;
  std::exception_ptr thrown_;
};

}  // namespace

Result<void> parallel_for(std::size_t count, std::size_t threads, const NumberedWork& work) {
  Workers workers(count, work);
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(std::min(threads, count));
    try {
      while (helpers.size() + 1 < std::min(threads, count))
        helpers.emplace_back([&workers] { workers.run_one_after_another(); });
    } catch (const std::system_error&) {  // the system's limit on threads
    }
    workers.run_one_after_another();
  }
  return workers.result();
}

Result<void> parallel_for(std::size_t count, const NumberedWork& work) {
  if (count == 0) return {};
  const auto began = std::chrono::steady_clock::now();
  TRY(work(0));
  const auto rest =
      (std::chrono::steady_clock::now() - began) * static_cast<std::int64_t>(count - 1);
  const auto helpers = static_cast<std::size_t>(rest / thread_work);
  return parallel_for(count - 1, std::min(most_threads, helpers + 1),
                      [&work](std::size_t number) { return work(number + 1); });
}

}  // namespace weightmap
