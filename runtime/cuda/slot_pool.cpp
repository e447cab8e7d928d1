#include "runtime/cuda/slot_pool.hpp"

#include <string>

#include "runtime/base/try.hpp"

namespace weightmap::cuda {

Result<void*> SlotPool::lock_memory(const Driver& driver) {
  void* memory = nullptr;
  if (!shared_) {
    TRY(driver.call(driver.host_allocate, &memory, slots() * slot_bytes_, 0U));
    return memory;
  }
  memory = shared_->bytes().data();
  TRY(driver.call(driver.host_register, memory, shared_->bytes().size(), 0U));
  return memory;
}

Result<void> SlotPool::make_memory(const std::shared_ptr<const Device>& device) {
  if (pinned_) return {};
  Result<void*> memory = lock_memory(device->driver());
  if (!memory) {
    memory.error().message.insert(0, std::to_string(slots()) +
                                         (shared_ ? " shared slots of " : " pinned slots of ") +
                                         std::to_string(slot_bytes_) + " bytes: ");
    return passed_on(std::move(memory).error());
  }
  pinned_ = Held<void*>(device, shared_ ? &Driver::host_unregister : &Driver::host_free, *memory);
  return {};
}

std::optional<std::size_t> SlotPool::try_take() {
  const std::scoped_lock lock(mutex_);
  for (std::size_t slot = 0; slot < taken_.size(); ++slot) {
    if (taken_[slot] || (shared_ && !shared_->try_lock(slot))) continue;
    taken_[slot] = true;
    return slot;
  }
  return std::nullopt;
}

void SlotPool::give_back(std::size_t slot) {
  const std::scoped_lock lock(mutex_);
  if (shared_) shared_->unlock(slot);
  taken_[slot] = false;
}

}  // namespace weightmap::cuda
