#include "runtime/services/cuda/slot_pool.hpp"

#include <string>

namespace weightmap::cuda {

Result<void> SlotPool::make_memory(const std::shared_ptr<const Device>& device) {
  if (pinned_) return {};
  const Driver& driver = device->driver();
  void* memory = nullptr;
  Result<void> made = driver.call(driver.host_allocate, &memory, slots_ * slot_bytes_, 0U);
  if (!made) {
    made.error().message.insert(
        0, std::to_string(slots_) + " pinned slots of " + std::to_string(slot_bytes_) + " bytes: ");
    return made;
  }
  pinned_ = Held<void*>(device, &Driver::host_free, memory);
  return {};
}

}  // namespace weightmap::cuda
