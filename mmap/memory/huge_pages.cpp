#include "mmap/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <limits>
#include <new>

namespace weightmap::os {
namespace {

constexpr std::size_t huge_page = HugePageResource::page;

bool has_own_pages(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes >= HugePageResource::threshold && alignment <= huge_page;
}

std::size_t round_to_pages(std::size_t bytes) noexcept {
  return (bytes + huge_page - 1) / huge_page * huge_page;
}

}  // namespace

void* HugePageResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (!has_own_pages(bytes, alignment)) return ::operator new(bytes, std::align_val_t(alignment));
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * huge_page) throw std::bad_alloc();
  const std::size_t size = round_to_pages(bytes);
  // mmap aligns to small pages only: ask for one huge page more and give back what sticks out.
  void* const mapped = ::mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % huge_page;
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, huge_page - before);
  ::madvise(first + before, size, MADV_HUGEPAGE);  // a refusal leaves small pages
  return first + before;
}

void HugePageResource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  if (!has_own_pages(bytes, alignment))
    ::operator delete(address, std::align_val_t(alignment));
  else
    ::munmap(address, round_to_pages(bytes));
}

}  // namespace weightmap::os
