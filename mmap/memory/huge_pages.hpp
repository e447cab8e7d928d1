// Memory for large parse buffers, from 2 MiB pages where the system has them, used again where it
// can be.
//
// What a parse costs is mostly the first touch of fresh pages: about 1.3 us for each 4 KiB, a sixth
// of that per byte in 2 MiB pages, and many times more on a virtual machine that has given its free
// memory back. So a large block that is freed is kept, and its pages are moved (mremap, not copied)
// into the next large block, however long that is.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace weightmap::os {

// Not thread-safe, but for deallocate() of small blocks. Everything must be deallocated before the
// resource is destroyed.
class HugePageResource final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t page = std::size_t{2} << 20;
  // Requests from here on get whole pages of their own; smaller ones come from operator new.
  static constexpr std::size_t threshold = std::size_t{1} << 20;

  HugePageResource() = default;
  HugePageResource(const HugePageResource&) = delete;
  HugePageResource& operator=(const HugePageResource&) = delete;
  ~HugePageResource() override { trim(); }

  // Gives the kept pages back to the system.
  void trim() noexcept;

 private:
  struct Block {
    std::byte* address;
    std::size_t size;  // whole pages
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
  void move_spare_pages_into(Block block);

  std::vector<Block> spare_;  // with room for the live ones, so that freeing never allocates
  std::size_t live_ = 0;      // large blocks that are in use
};

}  // namespace weightmap::os
