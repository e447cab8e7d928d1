#include "runtime/services/cuda/device.hpp"

#include <cstddef>
#include <string>

#include "runtime/base/try.hpp"

namespace weightmap::cuda {

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

}  // namespace weightmap::cuda
