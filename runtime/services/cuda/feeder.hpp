// Threads that prefetch the data of the next copies.
//
// They take the fills of a plan in order, at most as many ahead of the copies as there are slots,
// so the slot of each fill is free by then. They fault in the pages of a fill that is copied from
// the mapping, and never call the driver.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/cuda/upload_lane.hpp"
#include "runtime/services/cuda/upload_plan.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

// The copying thread calls all functions except the threads' own.
class Feeder {
 public:
  // All references must outlive this object.
  Feeder(Checkpoint::State& checkpoint, const UploadPlan& plan, const SlotPool& slots, Way way);
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;
  ~Feeder() { stop(); }

  // Fails with io if the system cannot create a thread.
  Result<void> start(std::size_t threads);

  bool is_filled(std::size_t batch) const;
  // Waits until the fill is ready; returns its error.
  Result<void> wait_filled(std::size_t batch);
  // Returns the place of a piece in a fill that is ready; nullptr if it is copied from the mapping.
  const std::byte* in_slot(std::size_t batch, const Transfer& transfer) const;
  // Copies this fill into its slot, and switches the threads to the slots from now on.
  // Precondition: the slots have memory.
  Result<void> use_slot_after_all(std::size_t batch);
  // Frees the slot of the first held fill, which was copied.
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
  // Protected by the mutex; a fill's own state also belongs to its thread until it is filled.
  std::vector<State> states_;
  std::size_t next_ = 0;      // next fill to be taken
  std::size_t released_ = 0;  // fills
  bool all_in_slots_;
  bool is_stopped_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace weightmap::cuda
