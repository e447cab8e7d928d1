// Memory for large parse buffers, from 2 MiB pages where the system has them, used again where it
// can be.
//
// What a parse costs is mostly the first touch of fresh pages: about 1.3 us for each 4 KiB, a sixth
// of that per byte in 2 MiB pages, and many times more on a virtual machine that has given its free
// memory back. So a large block that is freed is kept, and its pages are moved (mremap, not copied)
// into the next large block, however long that is. Blocks of a middle size share a page, a shelf.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <vector>

namespace weightmap::os {

// Not thread-safe, but for deallocate() of blocks below least_shelved. Everything must be
// deallocated before the resource is destroyed.
class HugePageResource final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t page = std::size_t{2} << 20;
  // Requests from here on get whole pages of their own.
  static constexpr std::size_t threshold = std::size_t{1} << 20;
  // Those between these two go on a shelf that has room; smaller ones come from operator new. A new
  // shelf is made of a page that is kept, or for a request of which a page is worth it: it costs as
  // much as 85 small pages.
  static constexpr std::size_t least_shelved = std::size_t{64} << 10;
  static constexpr std::size_t worth_a_shelf = std::size_t{256} << 10;

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
  struct Shelf {
    std::byte* address;  // of one page
    std::size_t used;    // bytes, from its start on
    std::size_t blocks;  // that are in use
  };

  std::byte* allocate_pages(std::size_t size);
  void free_pages(Block block) noexcept;
  // nullptr if this is one for operator new.
  void* allocate_on_shelf(std::size_t bytes, std::size_t alignment);
  // False if it does not lie on a shelf.
  bool free_on_shelf(std::byte* address, std::size_t bytes) noexcept;
  void move_spare_pages_into(Block block);

  std::vector<Block> spare_;  // with room for the live ones, so that freeing never allocates
  std::size_t live_ = 0;      // blocks of whole pages that are in use, shelves among them
  std::vector<Shelf> shelves_;
};

}  // namespace weightmap::os
