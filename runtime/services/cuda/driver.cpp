#include "runtime/services/cuda/driver.hpp"

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
