#include "mmap/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace weightmap::os {
namespace {

// Returns the size of a request with pages of its own; 0 if that overflows.
std::size_t round_to_pages(std::size_t bytes) noexcept {
  constexpr std::size_t page = HugePageResource::page;
  return (bytes + page - 1) / page * page;
}

}  // namespace

void* HugePageResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes < threshold) return ::operator new(bytes, std::align_val_t(alignment));
  const std::size_t size = round_to_pages(bytes);
  // Systems before Linux 6.7 align to small pages only, so this unmaps the excess of a larger
  // mapping.
  void* const mapped = size == 0 ? MAP_FAILED
                                 : ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % page;
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, page - before);
  ::madvise(first + before, size, MADV_HUGEPAGE);  // on refusal, pages stay small
  return first + before;
}

void HugePageResource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  if (bytes < threshold)
    ::operator delete(address, std::align_val_t(alignment));
  else
    ::munmap(address, round_to_pages(bytes));
}

}  // namespace weightmap::os
