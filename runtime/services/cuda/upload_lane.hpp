// The resources of consecutive uploads: a device, a stream and the slots.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "runtime/services/cuda/device.hpp"
#include "runtime/services/cuda/slot_pool.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

class UploadLane {
 public:
  // Implements Uploader::create().
  static Result<std::shared_ptr<UploadLane>> open(const UploaderOptions& options);

  const std::shared_ptr<const Device>& device() const noexcept { return device_; }
  const Driver& driver() const noexcept { return device_->driver(); }
  Stream stream() const noexcept { return stream_.get(); }
  SlotPool& slots() noexcept { return slots_; }
  // Sizes are rounded to whole pages.
  const UploaderOptions& options() const noexcept { return options_; }
  Way way() const noexcept { return way_; }

  // Returns false if another upload uses it.
  bool try_take() noexcept { return !taken_.exchange(true); }
  void give_back() noexcept { taken_ = false; }

 private:
  UploadLane(UploaderOptions options, std::shared_ptr<const Device> device, Way way,
             Held<Stream> stream);

  const UploaderOptions options_;
  const std::shared_ptr<const Device> device_;
  const Way way_;
  const Held<Stream> stream_;
  SlotPool slots_;
  std::atomic<bool> taken_{false};
};

}  // namespace weightmap::cuda
