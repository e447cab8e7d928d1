#include "mmap/memory/slot_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <utility>

#include "runtime/system/kernel.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::mmap {
namespace {

std::string addresses(std::uint64_t bytes) {
  return "get " + std::to_string(bytes) + " bytes of addresses";
}

// Turns what memory a range has into large pages, as much of it as is whole ones; the setting of
// the system alone gives files in memory none (shmem_enabled).
void collapse(std::span<std::byte> range) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(range.data());
  const std::size_t before = (os::large_page - address % os::large_page) % os::large_page;
  if (range.size() < before + os::large_page) return;
  const std::size_t whole = (range.size() - before) / os::large_page * os::large_page;
  ::madvise(range.data() + before, whole, MADV_COLLAPSE);
}

}  // namespace

Result<SlotMemory> SlotMemory::of_process(std::uint64_t bytes) {
  Reservation memory(bytes, os::large_page, Reservation::Access::write);
  if (memory.is_empty()) return os::os_failure(addresses(bytes));
  ::madvise(memory.bytes().data(), memory.bytes().size(), MADV_HUGEPAGE);
  return SlotMemory(std::move(memory), -1, 0);
}

Result<SlotMemory> SlotMemory::of_file(int descriptor, std::uint64_t offset, std::uint64_t bytes) {
  Reservation memory(bytes, os::large_page, Reservation::Access::none);
  if (memory.is_empty()) return os::os_failure(addresses(bytes));
  if (::mmap(memory.bytes().data(), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             descriptor, static_cast<off_t>(offset)) == MAP_FAILED) {
    const int error = errno;
    const auto refused = os::os_failure(addresses(bytes));
    memory.take_again(memory.bytes(), error);
    return refused;
  }
  ::madvise(memory.bytes().data(), bytes, MADV_DONTFORK);
  ::madvise(memory.bytes().data(), bytes, MADV_HUGEPAGE);
  return SlotMemory(std::move(memory), descriptor, offset);
}

Result<void> SlotMemory::allocate(std::uint64_t offset, std::uint64_t length) const {
  if (descriptor_ < 0) return {};
  const int refused = os::uninterrupted([&] {
    return ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_ + offset),
                       static_cast<off_t>(length));
  });
  if (refused != 0)
    return os::os_failure("get " + std::to_string(length) + " bytes of shared memory");
  collapse(bytes().subspan(offset, length));
  return {};
}

void SlotMemory::give_back(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (descriptor_ < 0) {
    ::madvise(&bytes()[offset], length, MADV_DONTNEED);
    return;
  }
  os::uninterrupted([&] {
    return ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
                       static_cast<off_t>(offset_ + offset), static_cast<off_t>(length));
  });
}

}  // namespace weightmap::mmap
