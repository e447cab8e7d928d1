// The threads that bring in what is to be copied next.
//
// They take the batches of a plan in order, no more ahead of what was copied than there are slots,
// so the slot of each batch is free by then. The pages of a batch that is copied from the mapping
// are faulted in. None of the threads calls the driver.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/cuda/slot_pool.hpp"
#include "runtime/cuda/upload_plan.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

// All but the threads' own part is for the thread that copies.
class Feeder {
 public:
  // All of these must outlive it.
  Feeder(Checkpoint::State& checkpoint, const UploadPlan& plan, const SlotPool& slots, Way way);
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;
  ~Feeder() { stop(); }

  // Fails with io if the system gives no thread.
  Result<void> start(std::size_t threads);

  bool is_filled(std::size_t batch) const;
  // Waits until it is; fails as it did.
  Result<void> wait_filled(std::size_t batch);
  // Where a transfer of a batch lies that is filled; nullptr: in the mapping.
  const std::byte* in_slot(std::size_t batch, const Transfer& transfer) const;
  // Copies all of this batch into its slot, and has the threads do so from now on. The slots have
  // memory now.
  Result<void> use_slot_after_all(std::size_t batch);
  // The first batch that is still held was copied: its slot is free.
  void release_first();

  // Waits for the threads.
  void stop();

 private:
  struct State {
    bool all_in_slot = false;
    bool is_filled = false;
    std::optional<Error> error;
  };

  void run() noexcept;
  std::optional<std::size_t> take_next();
  Result<void> fill(std::size_t batch);
  Result<void> fill_guarded(std::size_t batch) noexcept;

  Checkpoint::State& checkpoint_;
  const UploadPlan& plan_;
  const SlotPool& slots_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex; a batch's own state also is its thread's until it is filled.
  std::vector<State> states_;
  std::size_t next_ = 0;      // batch to be taken
  std::size_t released_ = 0;  // batches
  bool all_in_slots_;
  bool is_stopped_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace weightmap::cuda
