#include "mmap/reservation.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

int protection_of(Reservation::Access access) noexcept {
  switch (access) {
    case Reservation::Access::none:
      break;
    case Reservation::Access::read:
      return PROT_READ;
    case Reservation::Access::write:
      return PROT_READ | PROT_WRITE;
  }
  return PROT_NONE;
}

}  // namespace

Reservation::Reservation(std::size_t size, std::size_t alignment, Access access) noexcept {
  std::size_t wanted = 0;
  if (!bytes::checked_add(size, alignment - 1, &wanted)) {
    errno = ENOMEM;
    return;
  }
  wanted = wanted / os::page_bytes() * os::page_bytes();  // sufficient from any page on
  void* const start = ::mmap(nullptr, wanted, protection_of(access),
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return;
  start_ = static_cast<std::byte*>(start);
  reserved_ = wanted;
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(start) % alignment;
  bytes_ = {start_ + (beyond == 0 ? 0 : alignment - beyond), size};
}

Reservation::~Reservation() {
  if (reserved_ != 0) ::munmap(start_, reserved_);
}

Reservation Reservation::take_front(std::size_t size) noexcept {
  const std::size_t whole = os::whole_pages(size);
  Reservation front;
  front.start_ = start_;
  front.reserved_ = static_cast<std::size_t>(bytes_.data() - start_) + whole;
  front.bytes_ = bytes_.first(size);
  bytes_ = bytes_.subspan(std::min(whole, bytes_.size()));
  start_ += front.reserved_;
  reserved_ -= front.reserved_;
  return front;
}

bool Reservation::take_again(std::span<std::byte> part, int error) noexcept {
  void* const taken =
      ::mmap(part.data(), os::whole_pages(part.size()), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (taken == part.data()) return true;
  // Before Linux 4.17 the flag is a hint.
  if (taken != MAP_FAILED) ::munmap(taken, os::whole_pages(part.size()));
  if (error == ENOMEM) return true;
  release();
  bytes_ = {};
  return false;
}

}  // namespace weightmap::mmap
