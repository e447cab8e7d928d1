// The resources of consecutive uploads: a device, a stream and the slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/services/cuda/device.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

// The pinned slots of an Uploader.
class SlotPool {
 public:
  SlotPool(std::size_t slots, std::uint64_t slot_bytes) : slots_(slots), slot_bytes_(slot_bytes) {}

  std::size_t slots() const noexcept { return slots_; }

  // Allocates all slots, once. The context must be current.
  Result<void> make_memory(const std::shared_ptr<const Device>& device);
  // Returns the slot of this fill of an upload; fills take turns. Precondition: the memory exists.
  std::byte* memory(std::size_t batch) const noexcept {
    return static_cast<std::byte*>(pinned_.get()) + batch % slots_ * slot_bytes_;
  }

 private:
  const std::size_t slots_;
  const std::uint64_t slot_bytes_;
  Held<void*> pinned_;
};

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
