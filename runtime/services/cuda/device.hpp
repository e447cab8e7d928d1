// The functions of the CUDA driver that the library uses, resolved at run time; a device with its
// primary context, and the objects that are freed in it.
//
// No cuda.h is needed: names, numbers and signatures are those of the CUDA Driver API in its
// documentation and in cuda.h for 64-bit systems. Handles are pointers, a CUdeviceptr is a 64-bit
// integer, a CUdevice and a CUresult are ints.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/process/shared_library.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

using DevicePointer = std::uint64_t;                   // CUdeviceptr
using Context = struct OpaqueContext*;                 // CUcontext
using Stream = struct OpaqueStream*;                   // CUstream
using Event = struct OpaqueEvent*;                     // CUevent
using CallResult = int;                                // CUresult
inline constexpr CallResult success = 0;               // CUDA_SUCCESS
inline constexpr CallResult invalid_value = 1;         // CUDA_ERROR_INVALID_VALUE
inline constexpr CallResult already_registered = 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
inline constexpr CallResult not_supported = 801;       // CUDA_ERROR_NOT_SUPPORTED

// CU_DEVICE_ATTRIBUTE_*
inline constexpr int attribute_integrated = 18;
inline constexpr int attribute_host_register_supported = 99;
inline constexpr int attribute_uses_host_page_tables = 100;  // PAGEABLE_MEMORY_ACCESS_USES_...
inline constexpr int attribute_read_only_host_register_supported = 113;

inline constexpr unsigned stream_non_blocking = 1;      // CU_STREAM_NON_BLOCKING
inline constexpr unsigned event_disable_timing = 2;     // CU_EVENT_DISABLE_TIMING
inline constexpr unsigned host_register_read_only = 8;  // CU_MEMHOSTREGISTER_READ_ONLY

template <class... Parameters>
struct Function {
  const char* name;  // exported by the library
  CallResult (*pointer)(Parameters...) = nullptr;
};

class Driver {
 public:
  // Loads the library and calls cuInit(). An empty name means libcuda.so.1. Fails with unsupported
  // if there is no such library or it lacks a function, with io if the call fails.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library);

  template <class... Parameters, class... Arguments>
  CallResult result_of(const Function<Parameters...>& function, Arguments... arguments) const {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return function.pointer(arguments...);
  }
  // Fails with io, naming the call and CUDA's error.
  template <class... Parameters, class... Arguments>
  Result<void> call(const Function<Parameters...>& function, Arguments... arguments) const {
    const CallResult result = result_of(function, arguments...);
    if (result == success) return {};
    return failure(ErrorCode::io, text_of(function.name, result));
  }
  // Returns "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
  std::string text_of(const char* function, CallResult result) const;
  // The number of calls by all threads, without those for an error's name.
  std::uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }

  Function<unsigned> init{"cuInit"};
  Function<CallResult, const char**> get_error_name{"cuGetErrorName"};
  Function<CallResult, const char**> get_error_string{"cuGetErrorString"};
  Function<int*, int> device_get{"cuDeviceGet"};
  Function<int*, int, int> device_get_attribute{"cuDeviceGetAttribute"};
  Function<std::size_t*, int> device_total_memory{"cuDeviceTotalMem_v2"};
  Function<Context*, int> primary_context_retain{"cuDevicePrimaryCtxRetain"};
  Function<int> primary_context_release{"cuDevicePrimaryCtxRelease_v2"};
  Function<Context> context_push{"cuCtxPushCurrent_v2"};
  Function<Context*> context_pop{"cuCtxPopCurrent_v2"};
  Function<DevicePointer*, std::size_t> memory_allocate{"cuMemAlloc_v2"};
  Function<DevicePointer> memory_free{"cuMemFree_v2"};
  Function<void**, std::size_t, unsigned> host_allocate{"cuMemHostAlloc"};
  Function<void*> host_free{"cuMemFreeHost"};
  Function<void*, std::size_t, unsigned> host_register{"cuMemHostRegister_v2"};
  Function<void*> host_unregister{"cuMemHostUnregister"};
  Function<DevicePointer, const void*, std::size_t, Stream> copy_to_device{"cuMemcpyHtoDAsync_v2"};
  Function<Stream*, unsigned> stream_create{"cuStreamCreate"};
  Function<Stream> stream_synchronize{"cuStreamSynchronize"};
  Function<Stream> stream_destroy{"cuStreamDestroy_v2"};
  Function<Event*, unsigned> event_create{"cuEventCreate"};
  Function<Event, Stream> event_record{"cuEventRecord"};
  Function<Event> event_synchronize{"cuEventSynchronize"};
  Function<Event> event_destroy{"cuEventDestroy_v2"};

 private:
  Driver() = default;
  Result<void> find_all(const os::SharedLibrary& library, const std::string& name);

  mutable std::atomic<std::uint64_t> calls_{0};
};

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
