// The work of an Upload.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/cuda/device.hpp"
#include "runtime/services/cuda/feeder.hpp"
#include "runtime/services/cuda/upload_lane.hpp"
#include "runtime/services/cuda/upload_plan.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

// Fills are issued in order, as soon as they are ready; then each slot waits for its event, again
// in order, before it is filled again.
class UploadWork {
 public:
  // Implements Uploader::start().
  static Result<std::unique_ptr<UploadWork>> start(const std::shared_ptr<UploadLane>& lane,
                                                   Checkpoint::State& checkpoint,
                                                   std::span<const TensorView> views);
  UploadWork(const UploadWork&) = delete;
  UploadWork& operator=(const UploadWork&) = delete;
  ~UploadWork();

  Result<std::optional<DeviceTensor>> next();
  UploadReport report() const;
  // True in a forked child, which lacks the threads and must not destroy this object.
  bool is_inherited() const noexcept { return lane_->device()->is_inherited(); }

 private:
  UploadWork(std::shared_ptr<UploadLane> lane, Checkpoint::State& checkpoint, UploadPlan plan);

  const Driver& driver() const noexcept { return lane_->driver(); }
  Result<void> take_lane();
  Result<void> prepare();
  Result<DeviceTensor> finish_next();
  Result<void> go_on();  // performs one step
  Result<void> issue(std::size_t batch);
  Result<void> copy(std::size_t batch, const Transfer& transfer);
  Result<const void*> source_of(std::size_t batch, const Transfer& transfer);
  Result<void> allocate(std::size_t tensor);
  // Returns false if the registration is refused, now or before.
  Result<bool> register_range(std::size_t range);
  Result<void> release_first();
  Result<void> check_copied(std::size_t batch);

  const std::shared_ptr<UploadLane> lane_;
  Checkpoint::State& checkpoint_;
  UploadPlan plan_;
  std::vector<Held<void*>> registrations_;                      // by range
  std::vector<std::shared_ptr<Held<DevicePointer>>> memories_;  // by tensor
  std::vector<Held<Event>> events_;                             // by fill, reused in turn
  Feeder feeder_;
  std::size_t issued_ = 0;    // batches
  std::size_t released_ = 0;  // batches
  std::size_t given_ = 0;     // tensors
  bool has_lane_ = false;
  bool copies_under_way_ = false;   // or possibly
  bool registers_nothing_ = false;  // since the driver refused
  std::optional<Error> failed_;
  UploadReport report_;
  const std::uint64_t calls_before_;
};

}  // namespace weightmap::cuda
