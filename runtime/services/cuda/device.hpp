// A device with its primary context, and the objects that are freed in it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/services/cuda/driver.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

// Retains the primary context during its lifetime. The driver does not work in a forked child:
// objects inherited there belong to the parent and are not freed.
class Device {
 public:
  // Reads the attributes first. Fails with io as the driver does.
  static Result<std::shared_ptr<const Device>> open(std::shared_ptr<const Driver> driver,
                                                    int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const Driver& driver() const noexcept { return *driver_; }
  Context context() const noexcept { return context_; }
  int ordinal() const noexcept { return ordinal_; }
  const DeviceFacts& facts() const noexcept { return facts_; }
  bool is_inherited() const noexcept { return os::fork_count() != forks_; }
  // Fails with unsupported in a forked child.
  Result<void> check_own() const;

 private:
  Device(std::shared_ptr<const Driver> driver, int ordinal) noexcept;
  Result<void> retain();
  Result<bool> attribute(int number) const;
  Result<void> ask_attributes();

  std::shared_ptr<const Driver> driver_;
  const int ordinal_;
  const std::uint32_t forks_;
  int handle_ = 0;             // CUdevice
  Context context_ = nullptr;  // nullptr: not retained
  DeviceFacts facts_;
};

// Makes the device's context current in this thread until the end of the scope, and then restores
// the previous one. Check made() before anything else.
class Current {
 public:
  explicit Current(const Device& device)
      : device_(device),
        made_(device.driver().call(device.driver().context_push, device.context())) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    Context popped = nullptr;
    if (made_) device_.driver().result_of(device_.driver().context_pop, &popped);
  }

  const Result<void>& made() const noexcept { return made_; }

 private:
  const Device& device_;
  Result<void> made_;
};

// A resource of the driver, freed by one of its functions with the context current.
template <class Handle>
class Held {
 public:
  using Release = Function<Handle> Driver::*;

  Held() noexcept = default;
  Held(std::shared_ptr<const Device> device, Release release, Handle handle) noexcept
      : device_(std::move(device)), release_(release), handle_(handle) {}
  Held(Held&&) noexcept = default;
  Held& operator=(Held&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(release_, other.release_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  // Leaks the resource silently if it cannot be freed.
  ~Held() { static_cast<void>(give_back()); }

  // Does what the destructor does, and returns the error.
  Result<void> give_back() {
    const std::shared_ptr<const Device> device = std::move(device_);
    if (device == nullptr || device->is_inherited()) return {};
    const Current current(*device);
    if (!current.made()) return current.made();
    return device->driver().call(device->driver().*release_, handle_);
  }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return device_ != nullptr; }

 private:
  std::shared_ptr<const Device> device_;
  Release release_ = nullptr;
  Handle handle_ = {};
};

}  // namespace weightmap::cuda
