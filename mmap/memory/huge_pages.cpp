#include "mmap/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace weightmap::mmap {
namespace {

constexpr std::size_t huge_page = HugePageResource::page;

std::size_t padding(const std::byte* address, std::size_t alignment) noexcept {
  return -reinterpret_cast<std::uintptr_t>(address) % alignment;
}

// Systems before Linux 6.7 align to small pages only. So this asks for one huge page more, and
// gives back both ends.
std::byte* map_huge_pages(std::size_t size) {
  void* const mapped = size == 0 ? MAP_FAILED
                                 : ::mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = padding(first, huge_page);
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, huge_page - before);
  ::madvise(first + before, size, MADV_HUGEPAGE);  // on refusal, pages stay small
  return first + before;
}

}  // namespace

void* HugePageResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes < least) return ::operator new(bytes, std::align_val_t(alignment));
  const std::lock_guard lock(mutex_);
  for (Pages& pages : pages_) {
    const std::size_t at = pages.used + padding(pages.first + pages.used, alignment);
    if (at > pages.size || bytes > pages.size - at) continue;
    pages.used = at + bytes;
    ++pages.buffers;
    return pages.first + at;
  }
  if (bytes < threshold) return ::operator new(bytes, std::align_val_t(alignment));
  const std::size_t size = (bytes + page - 1) / page * page;  // 0 where no address lies behind it
  pages_.reserve(pages_.size() + 1);
  return pages_.emplace_back(Pages{map_huge_pages(size), size, bytes, 1}).first;
}

void HugePageResource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  if (bytes >= least) {
    const std::lock_guard lock(mutex_);
    const auto owner = std::find_if(pages_.begin(), pages_.end(), [&](const Pages& pages) {
      return address >= pages.first && address < pages.first + pages.size;
    });
    if (owner != pages_.end()) {
      if (--owner->buffers != 0) return;
      if (owner->size == page) {
        owner->used = 0;
        return;
      }
      ::munmap(owner->first, owner->size);
      pages_.erase(owner);
      return;
    }
  }
  ::operator delete(address, std::align_val_t(alignment));
}

void HugePageResource::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (const Pages& pages : pages_)
    if (pages.buffers == 0) ::munmap(pages.first, pages.size);
  std::erase_if(pages_, [](const Pages& pages) { return pages.buffers == 0; });
}

}  // namespace weightmap::mmap
