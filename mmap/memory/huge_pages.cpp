#include "mmap/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

namespace weightmap::os {
namespace {

constexpr std::size_t page = HugePageResource::page;

bool has_own_pages(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes >= HugePageResource::threshold && alignment <= page;
}

std::size_t round_to_pages(std::size_t bytes) noexcept { return (bytes + page - 1) / page * page; }

constexpr int map_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// mmap aligns to small pages only: ask for one huge page more and give back what sticks out.
std::byte* map_aligned(std::size_t size) {
  void* mapped = ::mmap(nullptr, size + page, PROT_READ | PROT_WRITE, map_flags, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(mapped);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % page;
  const std::size_t before = misaligned == 0 ? 0 : page - misaligned;
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, page - before);
  return first + before;
}

// What a failed mremap may have unmapped.
void map_again(std::byte* address, std::size_t size) {
  if (::mmap(address, size, PROT_READ | PROT_WRITE, map_flags | MAP_FIXED, -1, 0) == MAP_FAILED)
    throw std::bad_alloc();
}

}  // namespace

// Pages that were touched once; the tail of a block that never was moves along and costs nothing.
void HugePageResource::move_spare_pages_into(Block block) {
  while (block.size != 0 && !spare_.empty()) {
    Block& spare = spare_.back();
    const std::size_t size = std::min(spare.size, block.size);
    // MREMAP_FIXED replaces what is mapped at the destination.
    void* moved = ::mremap(spare.address, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block.address);
    if (moved == MAP_FAILED) return map_again(block.address, block.size);
    block = {block.address + size, block.size - size};
    spare = {spare.address + size, spare.size - size};
    if (spare.size == 0) spare_.pop_back();
  }
}

void* HugePageResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (!has_own_pages(bytes, alignment)) return ::operator new(bytes, std::align_val_t(alignment));
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * page) throw std::bad_alloc();
  const std::size_t size = round_to_pages(bytes);
  spare_.reserve(spare_.size() + live_ + 1);
  std::byte* address = map_aligned(size);
  move_spare_pages_into({address, size});
  ::madvise(address, size, MADV_HUGEPAGE);
  ++live_;
  return address;
}

void HugePageResource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  if (!has_own_pages(bytes, alignment))
    return ::operator delete(address, std::align_val_t(alignment));
  --live_;
  spare_.push_back({static_cast<std::byte*>(address), round_to_pages(bytes)});
}

void HugePageResource::trim() noexcept {
  for (const Block& block : spare_) ::munmap(block.address, block.size);
  spare_.clear();
}

}  // namespace weightmap::os
