// Uninitialised bytes from a memory resource, owned.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <utility>

namespace weightmap::bytes {

class Buffer {
 public:
  static constexpr std::size_t alignment = 64;

  Buffer() noexcept = default;
  // Throws std::bad_alloc. `memory` must outlive the buffer.
  Buffer(std::size_t size, std::pmr::memory_resource& memory)
      : data_(static_cast<std::byte*>(size ? memory.allocate(size, alignment) : nullptr)),
        size_(size),
        memory_(&memory) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        memory_(other.memory_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Buffer() {
    if (data_) memory_->deallocate(data_, size_, alignment);
  }

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte> span() noexcept { return {data_, size_}; }
  std::span<const std::byte> span() const noexcept { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::pmr::memory_resource* memory_ = nullptr;
};

}  // namespace weightmap::bytes
