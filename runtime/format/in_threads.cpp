#include "runtime/format/in_threads.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weightmap::format {
namespace {

// More reads at a time than there are cores: of what is not cached, each thread waits for one.
constexpr std::size_t most_threads = 8;

class Workers {
 public:
  Workers(std::size_t count, const std::function<Result<void>(std::size_t)>& work)
      : work_(work), faults_(count) {}

  Result<void> run() {
    {
      std::vector<std::jthread> helpers;
      const std::size_t count = std::min(most_threads, faults_.size());
      while (helpers.size() + 1 < count) {
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
  void run_one_after_another() noexcept {
    for (std::size_t at = next_++; at < faults_.size(); at = next_++) {
      try {
        Result<void> done = work_(at);
        if (!done) faults_[at] = std::move(done.error());
      } catch (...) {
        if (!has_thrown_.exchange(true)) thrown_ = std::current_exception();
      }
    }
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
