#include "mmap/memory/write_once_memory.hpp"

#include <fcntl.h>

#include <cerrno>

#include "mmap/memory/writable_memory.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::mmap {
namespace {

tl::unexpected<Error> no_room(std::uint64_t bytes, int error_number) {
  return tl::unexpected<Error>(
      os::os_error("get " + std::to_string(bytes) + " bytes of shared memory", error_number));
}

}  // namespace

Result<WriteOnceMemory> WriteOnceMemory::make(std::uint64_t bytes, const std::string& label) {
  const os::MemoryLimit limit = os::memory_limit();
  if (bytes > limit.usable())
    return failure(ErrorCode::io,
                   "a copy takes " + std::to_string(bytes) + " bytes of memory, and there are " +
                       std::to_string(limit.usable()) + " (15/16 of " + limit.reason + ")");
  TRY_ASSIGN(os::UniqueFd memory, os::make_memfd(bytes, label));
  const auto length = static_cast<off_t>(bytes);
  if (os::uninterrupted([&] { return ::fallocate(memory.get(), 0, 0, length); }) != 0)
    return no_room(bytes, errno);
  TRY_ASSIGN(Reservation mapped, map_for_writing(memory.get(), bytes));
  return WriteOnceMemory(std::move(memory), std::move(mapped));
}

Result<os::File> WriteOnceMemory::seal() && {
  mapped_ = Reservation();
  TRY(os::seal(memory_.get()));
  TRY_ASSIGN(const os::UniqueFd reading, os::reopen_for_reading(memory_.get()));
  return os::File::from_descriptor(reading.get());
}

}  // namespace weightmap::mmap
