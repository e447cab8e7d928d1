#include "runtime/format/in_threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weightmap::format {
namespace {

using Clock = std::chrono::steady_clock;

// More reads at a time than there are cores: of what is not cached, each thread waits for one.
constexpr std::size_t most_threads = 8;
// So much work is worth a thread, which costs a fourth of it.
constexpr std::chrono::microseconds thread_work{200};

class Workers {
 public:
  Workers(std::size_t count, const std::function<Result<void>(std::size_t)>& work)
      : work_(work), faults_(count) {}

  Result<void> run() {
    {
      const std::size_t count = helpers_for_the_rest();
      std::vector<std::jthread> helpers;
      while (helpers.size() < count) {
        try {
          helpers.emplace_back([this] { run_one_after_another(); });
        } catch (const std::system_error&) {
          break;  // there are no more threads to be had
        }
      }
      run_one_after_another();
    }
    if (thrown_) std::rethrow_exception(thrown_);
    for (std::optional<Error>& fault : faults_)
      if (fault) return tl::unexpected<Error>(std::move(*fault));
    return {};
  }

 private:
  // The first one is done here, and tells how long the others will take.
  std::size_t helpers_for_the_rest() noexcept {
    if (faults_.size() < 2) return 0;
    const Clock::time_point began = Clock::now();
    run_one(next_++);
    const auto rest = (Clock::now() - began) * static_cast<std::int64_t>(faults_.size() - 1);
    return std::min(
        {most_threads - 1, faults_.size() - 2, static_cast<std::size_t>(rest / thread_work)});
  }

  void run_one(std::size_t at) noexcept {
    try {
      Result<void> done = work_(at);
      if (!done) faults_[at] = std::move(done.error());
    } catch (...) {
      if (!has_thrown_.exchange(true)) thrown_ = std::current_exception();
    }
  }
  void run_one_after_another() noexcept {
    for (std::size_t at = next_++; at < faults_.size(); at = next_++) run_one(at);
  }

  const std::function<Result<void>(std::size_t)>& work_;
  std::vector<std::optional<Error>> faults_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> has_thrown_{false};
  std::exception_ptr thrown_;  // read when all threads have ended
};

}  // namespace

Result<void> in_threads(std::size_t count,
                        const std::function<Result<void>(std::size_t number)>& work) {
  return Workers(count, work).run();
}

}  // namespace weightmap::format
