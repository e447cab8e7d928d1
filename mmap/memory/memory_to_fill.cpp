#include "mmap/memory/memory_to_fill.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/kernel.hpp"
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

Result<MemoryToFill> MemoryToFill::map(int descriptor, std::uint64_t bytes) {
  TRY_ASSIGN(Reservation mapped, map_for_writing(descriptor, os::whole_pages(bytes)));
  ::madvise(mapped.bytes().data(), mapped.bytes().size(), MADV_HUGEPAGE);
  return MemoryToFill(descriptor, std::move(mapped));
}

MemoryToFill::MemoryToFill(int descriptor, Reservation mapped)
    : descriptor_(descriptor),
      mapped_(std::move(mapped)),
      allocated_((mapped_.bytes().size() + os::large_page - 1) / os::large_page) {}

Result<bool> MemoryToFill::allocate(std::uint64_t offset, std::uint64_t length) {
  bool allocated = false;
  const std::uint64_t end = offset + length;
  for (std::size_t step = offset / os::large_page; step * os::large_page < end; ++step) {
    TRY_ASSIGN(const bool was_new, allocate_step(step));
    allocated = allocated || was_new;
  }
  return allocated;
}

Result<bool> MemoryToFill::allocate_step(std::size_t step) {
  const std::scoped_lock lock(*allocating_);
  if (allocated_[step]) return false;
  const std::uint64_t offset = step * os::large_page;
  const std::uint64_t length = std::min<std::uint64_t>(os::large_page, bytes().size() - offset);
  if (collapses_ && length == os::large_page) collapse(offset);
  if (!reserve(offset, length))
    return tl::unexpected<Error>(
        os::os_error("get " + std::to_string(length) + " bytes of shared memory", errno, offset));
  allocated_[step] = true;
  return true;
}

bool MemoryToFill::reserve(std::uint64_t offset, std::uint64_t length) const noexcept {
  return os::uninterrupted([&] {
           return ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                              static_cast<off_t>(length));
         }) == 0;
}

// Turns one existing page into a huge one, with nothing to copy.
void MemoryToFill::collapse(std::uint64_t offset) noexcept {
  if (!reserve(offset, os::page_bytes())) return;
  if (::madvise(&bytes()[offset], os::large_page, MADV_COLLAPSE) != 0 && errno == EINVAL)
    collapses_ = false;
}

void MemoryToFill::fault_in(std::uint64_t offset, std::uint64_t length) const noexcept {
  const std::uint64_t first = offset / os::page_bytes() * os::page_bytes();
  ::madvise(&bytes()[first], os::whole_pages(offset + length - first), MADV_POPULATE_WRITE);
}

Result<Reservation> map_for_writing(int descriptor, std::uint64_t bytes) {
  Reservation mapped(bytes, os::large_page, Reservation::Access::none);
  const auto is_mapped = [&] {
    return ::mmap(mapped.bytes().data(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                  descriptor, 0) != MAP_FAILED;
  };
  if (!mapped.bytes().empty() && is_mapped()) return mapped;
  const int error = errno;
  const auto refused = os::os_failure("map " + std::to_string(bytes) + " bytes of shared memory");
  if (!mapped.is_empty()) mapped.take_again(mapped.bytes(), error);
  return refused;
}

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
