#include "mmap/reservation.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "runtime/bytes/checked.hpp"

namespace weightmap::os {
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
  if (!bytes::checked_add(size, alignment, &wanted)) {
    errno = ENOMEM;
    return;
  }
  void* const start = ::mmap(nullptr, wanted, protection_of(access),
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return;
  start_ = start;
  reserved_ = wanted;
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(start) % alignment;
  bytes_ = {static_cast<std::byte*>(start) + (beyond == 0 ? 0 : alignment - beyond), size};
}

Reservation::~Reservation() {
  if (start_ != nullptr) ::munmap(start_, reserved_);
}

}  // namespace weightmap::os
