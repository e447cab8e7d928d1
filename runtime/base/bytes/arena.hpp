// A bump allocator with a budget: many small objects, freed together.
//
// Allocates trivially destructible objects only. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <type_traits>
#include <vector>

#include "runtime/base/bytes/buffer.hpp"

namespace weightmap::bytes {

class Arena {
 public:
  // `chunk_bytes` is the size of each block from `memory`, which must outlive the arena; unused
  // pages of a block are never touched. `budget_bytes` bounds the sum of blocks.
  Arena(std::pmr::memory_resource& memory, std::size_t chunk_bytes,
        std::uint64_t budget_bytes) noexcept
      : memory_(&memory), chunk_bytes_(chunk_bytes), budget_(budget_bytes) {}

  // Returns uninitialised space for `count` T, or nullptr if the budget does not allow it.
  template <class T>
  T* allocate(std::size_t count = 1) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignment);
    if (count > budget_ / sizeof(T)) return nullptr;
    return static_cast<T*>(allocate_bytes(count * sizeof(T)));
  }

  // Raises the budget, for callers that learn the needed size late.
  void raise_budget(std::uint64_t more_bytes) noexcept { budget_ += more_bytes; }
  // Charges `bytes` of other memory to the budget; returns false if they do not fit.
  bool charge(std::uint64_t bytes) noexcept {
    if (bytes > budget_) return false;
    budget_ -= bytes;
    return true;
  }

 private:
  static constexpr std::size_t alignment = 8;
  void* allocate_bytes(std::size_t size) {
    size = (size + alignment - 1) / alignment * alignment;
    if (size > left_) return allocate_from_new_chunk(size);
    void* result = next_;
    next_ += size;
    left_ -= size;
    return result;
  }
  void* allocate_from_new_chunk(std::size_t size);

  std::pmr::memory_resource* memory_;
  std::vector<Buffer> chunks_;
  std::size_t chunk_bytes_;
  std::uint64_t budget_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace weightmap::bytes
