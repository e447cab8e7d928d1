#include "runtime/services/cuda/upload_lane.hpp"

#include <array>
#include <cstdint>
#include <string>

#include "runtime/base/try.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::cuda {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

Result<void> check_range(const char* field, std::uint64_t value, std::uint64_t least,
                         std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return failure(ErrorCode::invalid_argument, std::string("UploaderOptions::") + field + " is " +
                                                  std::to_string(value) + ", which is not from " +
                                                  std::to_string(least) + " to " +
                                                  std::to_string(most));
}

Result<UploaderOptions> complete(UploaderOptions options) {
  TRY(check_range("slots", options.slots, 2, 64));
  TRY(check_range("slot_bytes", options.slot_bytes, 4096, gib));
  TRY(check_range("threads", options.threads, 1, 64));
  TRY(check_range("register_bytes", options.register_bytes, 4096, 64 * gib));
  options.slot_bytes = os::whole_pages(options.slot_bytes);
  options.register_bytes = os::whole_pages(options.register_bytes);
  return options;
}

bool serves(Way way, const DeviceFacts& facts) noexcept {
  switch (way) {
    case Way::mapping:
      return facts.uses_host_page_tables || facts.is_integrated;
    case Way::registered:
      return facts.can_register && facts.can_register_read_only;
    case Way::slots:
      return true;
  }
  return false;
}

Result<Way> choose_way(const UploaderOptions& options, const DeviceFacts& facts) {
  if (!options.way) {
    if (serves(Way::mapping, facts)) return Way::mapping;
    return serves(Way::registered, facts) ? Way::registered : Way::slots;
  }
  if (serves(*options.way, facts)) return *options.way;
  return failure(ErrorCode::invalid_argument,
                 "CUDA device " + std::to_string(options.device) +
                     (*options.way == Way::mapping
                          ? " does not use the host's page tables, which Way::mapping needs"
                          : " cannot register read-only memory, which Way::registered needs"));
}

Result<Held<Stream>> make_stream(const std::shared_ptr<const Device>& device) {
  const Current current(*device);
  TRY(current.made());
  Stream stream = nullptr;
  TRY(device->driver().call(device->driver().stream_create, &stream, stream_non_blocking));
  return Held<Stream>(device, &Driver::stream_destroy, stream);
}

}  // namespace

std::string_view to_string(Way way) noexcept {
  constexpr std::array<std::string_view, 3> words = {"mapping", "registered", "slots"};
  return words.at(static_cast<std::size_t>(way));
}

Result<std::shared_ptr<UploadLane>> UploadLane::open(const UploaderOptions& given) {
  TRY_ASSIGN(UploaderOptions options, complete(given));
  TRY_ASSIGN(std::shared_ptr<const Driver> driver, Driver::open(options.library));
  TRY_ASSIGN(std::shared_ptr<const Device> device, Device::open(std::move(driver), options.device));
  TRY_ASSIGN(const Way way, choose_way(options, device->facts()));
  TRY_ASSIGN(Held<Stream> stream, make_stream(device));
  return std::shared_ptr<UploadLane>(
      new UploadLane(std::move(options), std::move(device), way, std::move(stream)));
}

UploadLane::UploadLane(UploaderOptions options, std::shared_ptr<const Device> device, Way way,
                       Held<Stream> stream)
    : options_(std::move(options)),
      device_(std::move(device)),
      way_(way),
      stream_(std::move(stream)),
      slots_(options_.slots, options_.slot_bytes) {}

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
