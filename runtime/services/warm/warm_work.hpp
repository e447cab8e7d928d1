// The work of a Warmer: threads that take steps from a plan.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "mmap/page_loader.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/verify/storage_summer.hpp"
#include "runtime/services/warm/warm_election.hpp"
#include "runtime/services/warm/warm_plan.hpp"
#include "runtime/services/warm/warm_window.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

// The owner's thread creates it, waits for it and destroys it. Each filling thread takes the next
// step until there is none, and a verifying one computes checksums behind them. The other functions
// may be called from any thread.
class WarmWork {
 public:
  using State = Checkpoint::State;

  // Starts the work. `sums` receives the summed bytes and all bytes, from the verifying thread.
  static Result<std::unique_ptr<WarmWork>> start(State& state, const WarmOptions& options,
                                                 Progress sums = {});
  ~WarmWork();  // cancels and waits
  WarmWork(const WarmWork&) = delete;
  WarmWork& operator=(const WarmWork&) = delete;

  // True in a forked child of the process that started it. Its threads do not exist there and its
  // locks may be held forever, so it may only be leaked.
  bool is_of_parent() const noexcept;
  // Leaks the object, but resets the advice that the child's mapping has inherited.
  static void give_up(std::unique_ptr<WarmWork> work) noexcept;

  WarmProgress progress() const noexcept;
  void pass(std::size_t tensor);
  void cancel() noexcept;
  bool wait_for(std::chrono::nanoseconds most) const noexcept;
  Result<WarmReport> wait();  // owner's thread only

 private:
  explicit WarmWork(State& state);

  // Called before there are threads.
  Result<void> prepare(const WarmOptions& options);
  void begin(const WarmOptions& options, Progress sums);

  // Called by the filling threads.
  void run();
  void begin_reading();
  void look_at_cache();
  void prepare_election();
  void read_exactly();
  bool wait_for_reader(std::size_t step);
  std::size_t bring_in(mmap::PageLoader& loader, std::size_t step, std::size_t end);
  void step_done(std::size_t step);
  void leave_behind(std::size_t step) noexcept;  // also called from pass()

  // Called by any of the threads. Catches std::bad_alloc, which would end the process.
  template <class Function>
  void run_guarded(const Function& function) noexcept;
  void fail(Error happened);
  void loading_ended();
  void thread_ended() noexcept;

  // Called by the owner's thread.
  void join();
  void complete_report();

  // Set before the threads start, and read-only afterwards.
  State& state_;
  const std::uint32_t forks_;  // of the process that started it
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  mmap::LoadMethod method_ = mmap::LoadMethod::populate;
  WarmPlan plan_;
  bool exact_ = false;  // only pages of the plan
  bool lock_ = false;
  bool drop_behind_ = false;
  bool one_reader_ = false;
  std::chrono::milliseconds patience_{};
  // With WarmOptions::follow: tensors in the consumer's order.
  std::vector<std::size_t> order_;
  std::unique_ptr<WarmWindow> window_;        // with `follow`; has its own lock
  const catalog::Catalog* summed_ = nullptr;  // with `verify_crc`
  std::unique_ptr<VerifyBehind> verify_;      // with `verify_crc`; has its own lock

  // Any thread.
  std::atomic<std::size_t> next_step_{0};
  std::atomic<std::uint64_t> bytes_done_{0};
  std::atomic<unsigned> loading_{0};       // threads that may still read
  std::atomic<std::uint32_t> running_{0};  // threads; wait_for() waits for zero
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> out_of_memory_{false};  // reported without allocating memory

  std::mutex error_mutex_;
  std::optional<Error> error_;  // the first; protected by the mutex
  std::mutex order_mutex_;
  std::size_t passed_ = 0;  // how many of order_; protected by the mutex

  // Written once under `begun_` or `elected_`; read by the threads after that, and by the owner's
  // after the threads have ended.
  std::once_flag begun_;
  std::once_flag elected_;
  bool all_cached_ = false;     // at the beginning
  bool reads_exactly_ = false;  // the mapping's readahead is off
  std::unique_ptr<WarmElection>
      election_;  // with `one_reader`, unless all was cached; has its own lock

  // Used by the owner's thread only; the verifying one writes report_.crc before it ends.
  std::vector<std::thread> threads_;
  std::thread verifier_;
  WarmReport report_;
  bool joined_ = false;
};

}  // namespace weightmap
