// A range of addresses that is released as a whole, or in parts with an owner each. Mappings placed
// into it neither collide with others nor leave a hole that another thread's mapping could take.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace weightmap::mmap {

class Reservation {
 public:
  enum class Access { none, read, write };  // unwritten memory reads as zeros

  Reservation() noexcept = default;
  // Reserves anonymous memory at an address that is a multiple of `alignment`, a power of two and
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

  // Splits off the pages of the first `size` bytes, together with the alignment space before them.
  Reservation take_front(std::size_t size) noexcept;
  // To be called where MAP_FIXED has failed with `error` over these of the bytes: if the driver of
  // the file refused, Linux has removed what was there, and the mapping of another thread, such as
  // its stack, may have come since. Returns true if they are reserved, again or still. Otherwise
  // all addresses stay as they are for good, and the reservation is empty. ENOMEM is a limit that
  // Linux looks at before it removes anything, so what is there then counts as still reserved; only
  // before 6.12, under strict overcommit, a private writable mapping meets one afterwards.
  bool take_again(std::span<std::byte> part, int error) noexcept;
  // Transfers the addresses to another owner.
  void release() noexcept { reserved_ = 0; }

 private:
  std::byte* start_ = nullptr;  // including the alignment space
  std::size_t reserved_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace weightmap::mmap
