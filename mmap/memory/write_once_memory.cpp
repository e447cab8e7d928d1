#include "mmap/memory/write_once_memory.hpp"

#include <fcntl.h>

#include <cerrno>

#include "mmap/memory/writable_memory.hpp"
#include "runtime/base/try.hpp"
#include "runtime/os/memory/memory_limit.hpp"
#include "runtime/os/memory/sealed_memory.hpp"
#include "runtime/os/os_error.hpp"
#include "runtime/os/page_size.hpp"
#include "runtime/os/uninterrupted.hpp"

namespace weightmap::os {
namespace {

tl::unexpected<Error> no_room(std::uint64_t bytes, int error_number) {
  return tl::unexpected<Error>(
      os_error("get " + std::to_string(bytes) + " bytes of shared memory", error_number));
}

}  // namespace

Result<WriteOnceMemory> WriteOnceMemory::make(std::uint64_t bytes, const std::string& label) {
  const MemoryLimit limit = memory_limit();
  if (bytes > limit.usable())
    return failure(ErrorCode::io,
                   "a copy takes " + std::to_string(bytes) + " bytes of memory, and there are " +
                       std::to_string(limit.usable()) + " (15/16 of " + limit.reason + ")");
  TRY_ASSIGN(UniqueFd memory, make_memfd(bytes, label));
  const auto length = static_cast<off_t>(bytes);
  if (uninterrupted([&] { return ::fallocate(memory.get(), 0, 0, length); }) != 0)
    return no_room(bytes, errno);
  TRY_ASSIGN(Reservation mapped, map_for_writing(memory.get(), bytes));
  return WriteOnceMemory(std::move(memory), std::move(mapped));
}

Result<File> WriteOnceMemory::seal() && {
  mapped_ = Reservation();
  TRY(os::seal(memory_.get()));
  TRY_ASSIGN(const UniqueFd reading, reopen_for_reading(memory_.get()));
  return File::from_descriptor(reading.get());
}

}  // namespace weightmap::os
