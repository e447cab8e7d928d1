// A range of addresses that is given back as a whole, or in parts that have an owner each: what is
// mapped into it can neither collide with other mappings nor leave a hole that another thread's
// mapping gets into.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace weightmap::mmap {

class Reservation {
 public:
  enum class Access { none, read, write };  // reading gives zeros, before anything was written

  Reservation() noexcept = default;
  // Anonymous memory at an address that is a multiple of `alignment`, which is a power of two and
  // at least a page. Empty, with errno set, if the system refuses.
  Reservation(std::size_t size, std::size_t alignment, Access access) noexcept;
  Reservation(Reservation&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)),
        reserved_(std::exchange(other.reserved_, 0)),
        bytes_(std::exchange(other.bytes_, {})) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(reserved_, other.reserved_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation();

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  bool is_empty() const noexcept { return reserved_ == 0; }

  // The pages of the first `size` bytes, apart from the rest; with them goes what lies before them
  // to find an aligned place.
  Reservation take_front(std::size_t size) noexcept;
  // What is mapped there is given back by somebody else.
  void release() noexcept { reserved_ = 0; }

 private:
  std::byte* start_ = nullptr;  // of what was reserved to find an aligned place
  std::size_t reserved_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace weightmap::mmap
