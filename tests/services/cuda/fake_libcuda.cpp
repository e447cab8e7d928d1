// A CUDA driver without a device: memory of the device is memory of the process, and a copy is done
// when somebody waits for it, no sooner, so that a slot that is written to too early shows as wrong
// bytes. Whatever a caller does that a driver would not stand, or not for sure, is a fault.
#include "tests/services/cuda/fake_libcuda.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0;
constexpr int invalid_value = 1;
constexpr int out_of_memory = 2;
constexpr int not_initialized = 3;
constexpr int invalid_device = 101;
constexpr int invalid_context = 201;
constexpr int invalid_handle = 400;
constexpr int already_registered = 712;
constexpr int not_supported = 801;

const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
constexpr int devices = 2;

struct Copy {
  std::uint64_t to;
  const char* from;
  std::size_t bytes;
};
struct Step {
  const void* event;  // nullptr: a copy
  Copy copy;
};
struct Stream {
  std::deque<Step> steps;
};
struct Event {
  Stream* stream = nullptr;  // where it was recorded; nullptr once somebody has waited for it
  bool is_pending = false;
};
struct Failure {
  std::string function;
  int countdown;
  int error;
};

struct Driver {
  std::mutex mutex;
  bool is_initialized = false;
  std::map<int, int> attributes;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::map<int, int> retained;                           // by device
  std::map<std::uint64_t, std::vector<char>> allocated;  // by pointer
  std::map<const char*, std::size_t> pinned;
  std::map<const char*, std::size_t> registered;
  std::size_t largest_registration = 0;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<std::string, int> calls;
  std::vector<Failure> failures;
  std::string faults;
  std::string answer;
};

Driver& driver() {
  static Driver* const the = new Driver;  // threads of a test may end after it
  return *the;
}

thread_local std::vector<void*> contexts;

void* context_of(int device) {
  static char places[devices];
  return places + device;
}

void fault(const std::string& text) { driver().faults += text + "\n"; }

// Counts the call, and tells whether it is to fail.
int begin(const char* function, bool needs_context = true) {
  Driver& the = driver();
  ++the.calls[function];
  if (!the.is_initialized && std::strcmp(function, "cuInit") != 0) {
    fault(std::string(function) + ": cuInit was not called");
    return not_initialized;
  }
  if (needs_context) {
    const bool is_current =
        !contexts.empty() && the.retained[static_cast<int>(static_cast<char*>(contexts.back()) -
                                                           static_cast<char*>(context_of(0)))] > 0;
    if (!is_current) {
      fault(std::string(function) + ": no context is current");
      return invalid_context;
    }
  }
  for (auto failure = the.failures.begin(); failure != the.failures.end(); ++failure)
    if (failure->function == function && --failure->countdown == 0) {
      const int error = failure->error;
      the.failures.erase(failure);
      return error;
    }
  return success;
}

bool holds(const std::map<const char*, std::size_t>& blocks, const char* from, std::size_t bytes) {
  auto block = blocks.upper_bound(from);
  if (block == blocks.begin()) return false;
  --block;
  const auto offset = static_cast<std::size_t>(from - block->first);
  return offset <= block->second && bytes <= block->second - offset;
}

bool reads_pageable() { return driver().attributes[100] != 0 || driver().attributes[18] != 0; }

char* device_bytes(std::uint64_t to, std::size_t bytes) {
  auto block = driver().allocated.upper_bound(to);
  if (block == driver().allocated.begin()) return nullptr;
  --block;
  const std::size_t offset = to - block->first;
  if (offset > block->second.size() || bytes > block->second.size() - offset) return nullptr;
  return block->second.data() + offset;
}

bool is_host_memory(const char* from, std::size_t bytes) {
  return reads_pageable() || holds(driver().pinned, from, bytes) ||
         holds(driver().registered, from, bytes);
}

void run(const Copy& copy) {
  char* const to = device_bytes(copy.to, copy.bytes);
  if (to == nullptr)
    fault("a copy was under way to memory that was freed");
  else if (!is_host_memory(copy.from, copy.bytes))
    fault("a copy was under way from memory that is not page-locked any more");
  else
    std::memcpy(to, copy.from, copy.bytes);
}

// Up to this event, or all.
void run_until(Stream& stream, const void* event) {
  while (!stream.steps.empty()) {
    const Step step = stream.steps.front();
    stream.steps.pop_front();
    if (step.event == nullptr) {
      run(step.copy);
      continue;
    }
    for (Event* const known : driver().events)
      if (known == step.event) known->is_pending = false;
    if (step.event == event) return;
  }
}

bool any_copy(const auto& matches) {
  for (const Stream* const stream : driver().streams)
    for (const Step& step : stream->steps)
      if (step.event == nullptr && matches(step.copy)) return true;
  return false;
}

bool is_copied_from(const char* begin, std::size_t bytes) {
  return any_copy([&](const Copy& copy) {
    return copy.from < begin + bytes && begin < copy.from + copy.bytes;
  });
}

// Whether all pages are mapped, and may be written to.
bool is_mapped(const char* begin, std::size_t bytes, bool writable) {
  std::ifstream maps("/proc/self/maps");
  auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t end = at + bytes;
  for (std::string line; at < end && std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char dash = 0;
    std::string rights;
    fields >> std::hex >> from >> dash >> to >> rights;
    if (from <= at && at < to && rights[0] == 'r' && (!writable || rights[1] == 'w')) at = to;
  }
  return at >= end;
}

}  // namespace

EXPORTED void fake_cuda_reset() {
  const std::scoped_lock lock(driver().mutex);
  driver().attributes.clear();
  driver().memory_bytes = std::size_t{1} << 30;
  driver().calls.clear();
  driver().failures.clear();
  driver().faults.clear();
  driver().largest_registration = 0;
}

EXPORTED void fake_cuda_set_attribute(int attribute, int value) {
  const std::scoped_lock lock(driver().mutex);
  driver().attributes[attribute] = value;
}

EXPORTED void fake_cuda_set_memory(std::size_t bytes) {
  const std::scoped_lock lock(driver().mutex);
  driver().memory_bytes = bytes;
}

EXPORTED void fake_cuda_fail(const char* function, int nth, int error) {
  const std::scoped_lock lock(driver().mutex);
  driver().failures.push_back({function, nth, error});
}

EXPORTED int fake_cuda_calls(const char* function) {
  const std::scoped_lock lock(driver().mutex);
  return driver().calls[function];
}

EXPORTED const char* fake_cuda_faults() {
  const std::scoped_lock lock(driver().mutex);
  driver().answer = driver().faults;
  return driver().answer.c_str();
}

EXPORTED const char* fake_cuda_held() {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  the.answer.clear();
  const auto tell = [&](std::size_t count, const char* what) {
    if (count > 0) the.answer += std::to_string(count) + " " + what + "\n";
  };
  for (const auto& [device, count] : the.retained)
    tell(static_cast<std::size_t>(count), "contexts");
  tell(the.allocated.size(), "allocations");
  tell(the.pinned.size(), "pinned blocks");
  tell(the.registered.size(), "registrations");
  tell(the.streams.size(), "streams");
  tell(the.events.size(), "events");
  tell(contexts.size(), "contexts on this thread's stack");
  return the.answer.c_str();
}

EXPORTED void fake_cuda_forget_held() {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  the.retained.clear();
  the.allocated.clear();
  for (const auto& [memory, bytes] : the.pinned) std::free(const_cast<char*>(memory));
  the.pinned.clear();
  the.registered.clear();
  for (Stream* const stream : the.streams) delete stream;
  the.streams.clear();
  for (Event* const event : the.events) delete event;
  the.events.clear();
}

EXPORTED int fake_cuda_read(std::uint64_t pointer, void* out, std::size_t bytes) {
  const std::scoped_lock lock(driver().mutex);
  const char* const from = device_bytes(pointer, bytes);
  if (from == nullptr) return 0;
  std::memcpy(out, from, bytes);
  return 1;
}

EXPORTED std::size_t fake_cuda_largest_registration() {
  const std::scoped_lock lock(driver().mutex);
  return driver().largest_registration;
}

EXPORTED int cuInit(unsigned flags) {
  const std::scoped_lock lock(driver().mutex);
  const int error = begin("cuInit", false);
  if (flags != 0) return invalid_value;
  if (error == success) driver().is_initialized = true;
  return error;
}

EXPORTED int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> names = {
      {invalid_value, "CUDA_ERROR_INVALID_VALUE"},
      {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {not_initialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
      {invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
      {invalid_handle, "CUDA_ERROR_INVALID_HANDLE"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {already_registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
  };
  const auto found = names.find(error);
  if (found == names.end()) return invalid_value;
  *name = found->second;
  return success;
}

EXPORTED int cuGetErrorString(int error, const char** text) {
  if (error != out_of_memory && error != 700) return invalid_value;
  *text = error == out_of_memory ? "out of memory" : "an illegal memory access was encountered";
  return success;
}

EXPORTED int cuDeviceGet(int* device, int ordinal) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuDeviceGet", false)) return error;
  if (ordinal < 0 || ordinal >= devices) return invalid_device;
  *device = ordinal;
  return success;
}

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuDeviceGetAttribute", false)) return error;
  if (device < 0 || device >= devices) return invalid_device;
  *value = driver().attributes[attribute];
  return success;
}

EXPORTED int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuDeviceTotalMem_v2", false)) return error;
  if (device < 0 || device >= devices) return invalid_device;
  *bytes = driver().memory_bytes;
  return success;
}

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int device) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuDevicePrimaryCtxRetain", false)) return error;
  if (device < 0 || device >= devices) return invalid_device;
  ++driver().retained[device];
  *context = context_of(device);
  return success;
}

EXPORTED int cuDevicePrimaryCtxRelease_v2(int device) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuDevicePrimaryCtxRelease_v2", false);
  if (the.retained[device] == 0) {
    fault("a context was released that nobody had retained");
    return invalid_context;
  }
  --the.retained[device];
  const bool is_used = !the.allocated.empty() || !the.pinned.empty() || !the.registered.empty() ||
                       !the.streams.empty() || !the.events.empty();
  if (the.retained[0] == 0 && the.retained[1] == 0 && is_used)
    fault("a context was released before what was made in it");
  return error;
}

EXPORTED int cuCtxPushCurrent_v2(void* context) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuCtxPushCurrent_v2", false)) return error;
  if (context == nullptr) return invalid_context;
  contexts.push_back(context);
  return success;
}

EXPORTED int cuCtxPopCurrent_v2(void** context) {
  const std::scoped_lock lock(driver().mutex);
  const int error = begin("cuCtxPopCurrent_v2");
  if (contexts.empty()) return invalid_context;
  *context = contexts.back();
  contexts.pop_back();
  return error;
}

EXPORTED int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t bytes) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuMemAlloc_v2")) return error;
  if (bytes == 0) {
    fault("cuMemAlloc_v2: of nothing");
    return invalid_value;
  }
  if (bytes > the.memory_bytes) return out_of_memory;
  std::vector<char> memory(bytes, '\x55');
  *pointer = reinterpret_cast<std::uintptr_t>(memory.data());
  the.allocated.emplace(*pointer, std::move(memory));
  return success;
}

EXPORTED int cuMemFree_v2(std::uint64_t pointer) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuMemFree_v2");
  const auto found = the.allocated.find(pointer);
  if (found == the.allocated.end()) {
    fault("cuMemFree_v2: of what is not allocated");
    return invalid_value;
  }
  const std::size_t bytes = found->second.size();
  if (any_copy([&](const Copy& copy) { return copy.to >= pointer && copy.to < pointer + bytes; }))
    fault("cuMemFree_v2: while a copy to it was under way");
  the.allocated.erase(found);
  return error;
}

EXPORTED int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuMemHostAlloc")) return error;
  if (bytes == 0 || flags > 7) return invalid_value;
  *pointer = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  if (*pointer == nullptr) return out_of_memory;
  std::memset(*pointer, 0x66, bytes);
  the.pinned.emplace(static_cast<const char*>(*pointer), bytes);
  return success;
}

EXPORTED int cuMemFreeHost(void* pointer) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuMemFreeHost");
  const auto found = the.pinned.find(static_cast<const char*>(pointer));
  if (found == the.pinned.end()) {
    fault("cuMemFreeHost: of what is not allocated");
    return invalid_value;
  }
  if (is_copied_from(found->first, found->second))
    fault("cuMemFreeHost: while a copy from it was under way");
  the.pinned.erase(found);
  std::free(pointer);
  return error;
}

EXPORTED int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuMemHostRegister_v2")) return error;
  const auto* const begin_of = static_cast<const char*>(pointer);
  const bool is_read_only = (flags & 8) != 0;
  if (flags > 15 || bytes == 0) return invalid_value;
  if (reinterpret_cast<std::uintptr_t>(pointer) % page != 0 || bytes % page != 0)
    fault("cuMemHostRegister_v2: not of whole pages");
  if (is_read_only && the.attributes[113] == 0) return not_supported;
  if (!is_mapped(begin_of, bytes, !is_read_only)) {
    fault("cuMemHostRegister_v2: of memory that is not mapped so");
    return invalid_value;
  }
  for (const auto& [other, size] : the.registered)
    if (other < begin_of + bytes && begin_of < other + size) return already_registered;
  the.registered.emplace(begin_of, bytes);
  the.largest_registration = std::max(the.largest_registration, bytes);
  return success;
}

EXPORTED int cuMemHostUnregister(void* pointer) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuMemHostUnregister");
  const auto found = the.registered.find(static_cast<const char*>(pointer));
  if (found == the.registered.end()) {
    fault("cuMemHostUnregister: of what is not registered");
    return 713;
  }
  if (!is_mapped(found->first, found->second, false))
    fault("cuMemHostUnregister: of what is not mapped any more");
  if (is_copied_from(found->first, found->second))
    fault("cuMemHostUnregister: while a copy from it was under way");
  the.registered.erase(found);
  return error;
}

EXPORTED int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes,
                                  void* stream) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuMemcpyHtoDAsync_v2")) return error;
  auto* const known = static_cast<Stream*>(stream);
  if (!the.streams.contains(known)) {
    fault("cuMemcpyHtoDAsync_v2: no such stream");
    return invalid_handle;
  }
  if (device_bytes(to, bytes) == nullptr || bytes == 0) {
    fault("cuMemcpyHtoDAsync_v2: the destination is not allocated");
    return invalid_value;
  }
  const auto* const source = static_cast<const char*>(from);
  if (!is_host_memory(source, bytes)) {
    fault("cuMemcpyHtoDAsync_v2: the source is not page-locked as one");
    return invalid_value;
  }
  known->steps.push_back({nullptr, {to, source, bytes}});
  return success;
}

EXPORTED int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuMemcpyDtoH_v2")) return error;
  const char* const source = device_bytes(from, bytes);
  if (source == nullptr) return invalid_value;
  std::memcpy(to, source, bytes);
  return success;
}

EXPORTED int cuStreamCreate(void** stream, unsigned flags) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuStreamCreate")) return error;
  if (flags > 1) return invalid_value;
  *stream = *driver().streams.insert(new Stream).first;
  return success;
}

EXPORTED int cuStreamSynchronize(void* stream) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuStreamSynchronize");
  auto* const known = static_cast<Stream*>(stream);
  if (!the.streams.contains(known)) return invalid_handle;
  run_until(*known, nullptr);
  return error;
}

EXPORTED int cuStreamDestroy_v2(void* stream) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuStreamDestroy_v2");
  auto* const known = static_cast<Stream*>(stream);
  if (the.streams.erase(known) == 0) {
    fault("cuStreamDestroy_v2: no such stream");
    return invalid_handle;
  }
  if (!known->steps.empty()) fault("cuStreamDestroy_v2: while something was under way");
  delete known;
  return error;
}

EXPORTED int cuEventCreate(void** event, unsigned flags) {
  const std::scoped_lock lock(driver().mutex);
  if (const int error = begin("cuEventCreate")) return error;
  if (flags > 7) return invalid_value;
  *event = *driver().events.insert(new Event).first;
  return success;
}

EXPORTED int cuEventRecord(void* event, void* stream) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuEventRecord")) return error;
  auto* const known = static_cast<Event*>(event);
  if (!the.events.contains(known) || !the.streams.contains(static_cast<Stream*>(stream))) {
    fault("cuEventRecord: no such event or stream");
    return invalid_handle;
  }
  if (known->stream != nullptr) fault("cuEventRecord: of an event that nobody has waited for");
  known->stream = static_cast<Stream*>(stream);
  known->is_pending = true;
  known->stream->steps.push_back({event, {}});
  return success;
}

EXPORTED int cuEventSynchronize(void* event) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  if (const int error = begin("cuEventSynchronize")) return error;
  auto* const known = static_cast<Event*>(event);
  if (!the.events.contains(known)) {
    fault("cuEventSynchronize: no such event");
    return invalid_handle;
  }
  if (known->stream == nullptr) fault("cuEventSynchronize: of an event that was not recorded");
  if (known->is_pending) run_until(*known->stream, event);
  known->stream = nullptr;
  return success;
}

EXPORTED int cuEventDestroy_v2(void* event) {
  Driver& the = driver();
  const std::scoped_lock lock(the.mutex);
  const int error = begin("cuEventDestroy_v2");
  auto* const known = static_cast<Event*>(event);
  if (the.events.erase(known) == 0) {
    fault("cuEventDestroy_v2: no such event");
    return invalid_handle;
  }
  delete known;
  return error;
}
