#include "mmap/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

namespace weightmap::os {
namespace {

constexpr std::size_t huge_page = HugePageResource::page;

bool has_own_pages(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes >= HugePageResource::threshold && alignment <= huge_page;
}

bool may_be_shelved(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes >= HugePageResource::least_shelved && bytes < HugePageResource::threshold &&
         alignment <= huge_page;
}

std::size_t round_to_pages(std::size_t bytes) noexcept {
  return (bytes + huge_page - 1) / huge_page * huge_page;
}

constexpr int map_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// mmap aligns to small pages only: ask for one huge page more and give back what sticks out.
std::byte* map_aligned(std::size_t size) {
  void* mapped = ::mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, map_flags, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(mapped);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(first) % huge_page;
  const std::size_t before = misaligned == 0 ? 0 : huge_page - misaligned;
  if (before != 0) ::munmap(first, before);
  ::munmap(first + before + size, huge_page - before);
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

std::byte* HugePageResource::allocate_pages(std::size_t size) {
  spare_.reserve(spare_.size() + live_ + 1);
  std::byte* address = map_aligned(size);
  move_spare_pages_into({address, size});
  ::madvise(address, size, MADV_HUGEPAGE);
  ++live_;
  return address;
}

void HugePageResource::free_pages(Block block) noexcept {
  --live_;
  spare_.push_back(block);
}

void* HugePageResource::allocate_on_shelf(std::size_t bytes, std::size_t alignment) {
  const auto place = [&](Shelf& shelf) -> std::byte* {
    const std::size_t at = (shelf.used + alignment - 1) / alignment * alignment;
    if (at > huge_page || bytes > huge_page - at) return nullptr;
    shelf.used = at + bytes;
    ++shelf.blocks;
    return shelf.address + at;
  };
  for (Shelf& shelf : shelves_)
    if (std::byte* const placed = place(shelf)) return placed;
  if (spare_.empty() && bytes < worth_a_shelf) return nullptr;
  shelves_.reserve(shelves_.size() + 1);
  return place(shelves_.emplace_back(Shelf{allocate_pages(huge_page), 0, 0}));
}

bool HugePageResource::free_on_shelf(std::byte* address, std::size_t bytes) noexcept {
  const auto shelf = std::find_if(shelves_.begin(), shelves_.end(), [&](const Shelf& candidate) {
    return candidate.address == address - reinterpret_cast<std::uintptr_t>(address) % huge_page;
  });
  if (shelf == shelves_.end()) return false;
  if (address + bytes == shelf->address + shelf->used) shelf->used -= bytes;
  if (--shelf->blocks != 0) return true;
  free_pages({shelf->address, huge_page});
  shelves_.erase(shelf);
  return true;
}

void* HugePageResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (has_own_pages(bytes, alignment)) {
    if (bytes > std::numeric_limits<std::size_t>::max() - 2 * huge_page) throw std::bad_alloc();
    return allocate_pages(round_to_pages(bytes));
  }
  void* const shelved =
      may_be_shelved(bytes, alignment) ? allocate_on_shelf(bytes, alignment) : nullptr;
  return shelved != nullptr ? shelved : ::operator new(bytes, std::align_val_t(alignment));
}

void HugePageResource::do_deallocate(void* address, std::size_t bytes, std::size_t alignment) {
  auto* const first = static_cast<std::byte*>(address);
  if (has_own_pages(bytes, alignment)) return free_pages({first, round_to_pages(bytes)});
  if (may_be_shelved(bytes, alignment) && free_on_shelf(first, bytes)) return;
  ::operator delete(address, std::align_val_t(alignment));
}

void HugePageResource::trim() noexcept {
  for (const Block& block : spare_) ::munmap(block.address, block.size);
  spare_.clear();
}

}  // namespace weightmap::os
