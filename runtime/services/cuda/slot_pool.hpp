// The pinned slots of an Uploader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/services/cuda/device.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

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

}  // namespace weightmap::cuda
