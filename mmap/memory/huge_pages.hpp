// Memory for large parse buffers, from 2 MiB pages if the system has them: a fault maps 512 small
// ones.
#pragma once

#include <cstddef>
#include <memory_resource>

namespace weightmap::os {

// May be used by any thread. Precondition: no alignment exceeds a huge page.
class HugePageResource final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t page = std::size_t{2} << 20;
  // Larger requests get whole pages of their own; smaller ones use operator new. A page costs as
  // much as 85 small ones.
  static constexpr std::size_t threshold = std::size_t{512} << 10;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* address, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return dynamic_cast<const HugePageResource*>(&other) != nullptr;
  }
};

}  // namespace weightmap::os
