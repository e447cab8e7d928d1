#include "runtime/services/cuda/device.hpp"

#include <cstddef>
#include <string>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::cuda {
namespace {

template <class... Parameters>
bool find(const os::SharedLibrary& library, Function<Parameters...>& function,
          const char*& missing) {
  function.pointer = reinterpret_cast<CallResult (*)(Parameters...)>(library.find(function.name));
  if (function.pointer == nullptr) missing = function.name;
  return function.pointer != nullptr;
}

}  // namespace

Result<std::shared_ptr<const Device>> Device::open(std::shared_ptr<const Driver> driver,
                                                   int ordinal) {
  const std::shared_ptr<Device> device(new Device(std::move(driver), ordinal));
  if (Result<void> made = device->retain(); !made) {
    made.error().message.insert(0, "CUDA device " + std::to_string(ordinal) + ": ");
    return passed_on(std::move(made).error());
  }
  return std::shared_ptr<const Device>(device);
}

Device::Device(std::shared_ptr<const Driver> driver, int ordinal) noexcept
    : driver_(std::move(driver)), ordinal_(ordinal), forks_(os::fork_count()) {
  os::count_forks();
}

Device::~Device() {
  if (context_ != nullptr && !is_inherited())
    driver_->result_of(driver_->primary_context_release, handle_);
}

Result<void> Device::check_own() const {
  if (!is_inherited()) return {};
  return failure(ErrorCode::unsupported, "CUDA does not work in a forked child of its process");
}

Result<void> Device::retain() {
  TRY(driver_->call(driver_->device_get, &handle_, ordinal_));
  TRY(ask_attributes());
  return driver_->call(driver_->primary_context_retain, &context_, handle_);
}

Result<bool> Device::attribute(int number) const {
  int value = 0;
  TRY(driver_->call(driver_->device_get_attribute, &value, number, handle_));
  return value != 0;
}

Result<void> Device::ask_attributes() {
  TRY_ASSIGN(facts_.is_integrated, attribute(attribute_integrated));
  TRY_ASSIGN(facts_.uses_host_page_tables, attribute(attribute_uses_host_page_tables));
  TRY_ASSIGN(facts_.can_register, attribute(attribute_host_register_supported));
  TRY_ASSIGN(facts_.can_register_read_only, attribute(attribute_read_only_host_register_supported));
  std::size_t bytes = 0;
  TRY(driver_->call(driver_->device_total_memory, &bytes, handle_));
  facts_.memory_bytes = bytes;
  return {};
}

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& library) {
  const std::string name = library.empty() ? "libcuda.so.1" : library;
  Result<os::SharedLibrary> loaded = os::SharedLibrary::load(name);
  if (!loaded) {
    loaded.error().message.insert(0, "there is no CUDA driver: ");
    return passed_on(std::move(loaded).error());
  }
  const std::shared_ptr<Driver> driver(new Driver);
  TRY(driver->find_all(*loaded, name));
  TRY(driver->call(driver->init, 0U));
  return std::shared_ptr<const Driver>(driver);
}

Result<void> Driver::find_all(const os::SharedLibrary& library, const std::string& name) {
  const char* missing = nullptr;
  const auto find_these = [&](auto&... functions) {
    return (find(library, functions, missing) && ...);
  };
  if (find_these(init, get_error_name, get_error_string, device_get, device_get_attribute,
                 device_total_memory, primary_context_retain, primary_context_release, context_push,
                 context_pop, memory_allocate, memory_free, host_allocate, host_free, host_register,
                 host_unregister, copy_to_device, stream_create, stream_synchronize, stream_destroy,
                 event_create, event_record, event_synchronize, event_destroy))
    return {};
  return failure(ErrorCode::unsupported, "the CUDA driver " + bytes::quote(name, 4096) +
                                             " has no function " + missing +
                                             ", so it is too old, or no driver");
}

std::string Driver::text_of(const char* function, CallResult result) const {
  const char* name = nullptr;
  const char* sentence = nullptr;
  if (get_error_name.pointer(result, &name) != success || name == nullptr)
    name = "an error that it has no name for";
  std::string text =
      std::string(function) + " failed: " + name + " (" + std::to_string(result) + ")";
  if (get_error_string.pointer(result, &sentence) == success && sentence != nullptr)
    text += std::string(": ") + sentence;
  return text;
}

}  // namespace weightmap::cuda
