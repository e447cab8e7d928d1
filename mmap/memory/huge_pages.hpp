// Memory for large parse buffers, from 2 MiB pages if the system has them: a fault maps 512 small
// ones.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <vector>

namespace weightmap::mmap {

// May be used by any thread. Precondition: no alignment exceeds a huge page.
class HugePageResource final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t page = std::size_t{2} << 20;
  // Larger requests get whole pages of their own; smaller ones use operator new. A page costs as
  // much as 85 small ones.
  static constexpr std::size_t threshold = std::size_t{512} << 10;
  // Requests from here on are placed behind others on a huge page that has room for them; smaller
  // ones come from operator new.
  static constexpr std::size_t least = std::size_t{16} << 10;

  HugePageResource() = default;
  ~HugePageResource() override { trim(); }
  // Unmaps single pages that no buffer uses any more. The next buffer has them without a fault
  // until then; what is larger is unmapped at once.
  void trim() noexcept;

 private:
  // Consecutive huge pages, of which the first `used` bytes are in `buffers` buffers.
  struct Pages {
    std::byte* first;
    std::size_t size, used, buffers;
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::mutex mutex_;
  std::vector<Pages> pages_;
};

}  // namespace weightmap::mmap
