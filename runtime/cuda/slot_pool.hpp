// The pinned slots of an Uploader.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "mmap/memory/shared_slots.hpp"
#include "runtime/cuda/device.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

class SlotPool {
 public:
  // Between two looks at whether another process has given a slot back.
  static constexpr std::chrono::milliseconds pause{1};

  // `shared`: the slots are those, of as many bytes.
  SlotPool(std::size_t slots, std::uint64_t slot_bytes, std::optional<os::SharedSlots> shared)
      : slot_bytes_(slot_bytes), shared_(std::move(shared)), taken_(slots, false) {}

  std::size_t slots() const noexcept { return taken_.size(); }
  std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }

  // Allocates all of it, or page-locks what is shared, once. The context must be current. Not while
  // slots are written to.
  Result<void> make_memory(const std::shared_ptr<const Device>& device);
  // Precondition: there is memory.
  std::byte* memory(std::size_t slot) const noexcept {
    return static_cast<std::byte*>(pinned_.get()) + slot * slot_bytes_;
  }

  // The number of a slot that nobody else uses, in whatever process; nullopt if there is none. Both
  // by any thread.
  std::optional<std::size_t> try_take();
  void give_back(std::size_t slot);

 private:
  Result<void*> lock_memory(const Driver& driver);

  const std::uint64_t slot_bytes_;
  const std::optional<os::SharedSlots> shared_;
  Held<void*> pinned_;
  std::mutex mutex_;
  std::vector<bool> taken_;  // under the mutex
};

}  // namespace weightmap::cuda
