#include "mmap/pages/file_window.hpp"

#include <sys/mman.h>

namespace weightmap::os {
namespace {

bool map_part(std::byte* address, const File& file, const FileWindow::Part& part) noexcept {
  for (const int sharing : {MAP_SHARED, MAP_PRIVATE})  // some file systems refuse the first
    if (::mmap(address, part.length, PROT_READ, sharing | MAP_FIXED, file.descriptor(),
               static_cast<off_t>(part.offset)) != MAP_FAILED)
      return true;
  return false;
}

}  // namespace

FileWindow::FileWindow(const File& file, std::span<const Part> parts,
                       std::uint64_t alignment) noexcept {
  std::uint64_t all = 0;
  for (const Part& part : parts) all += part.length;
  reserved_ = all + alignment;
  reservation_ =
      ::mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation_ == MAP_FAILED) return;
  const auto start = reinterpret_cast<std::uintptr_t>(reservation_);
  std::byte* const first =
      static_cast<std::byte*>(reservation_) + (alignment - start % alignment) % alignment;
  std::byte* next = first;
  for (const Part& part : parts) {
    if (!map_part(next, file, part)) return;
    next += part.length;
  }
  bytes_ = {first, next};
}

FileWindow::~FileWindow() {
  if (reservation_ != MAP_FAILED) ::munmap(reservation_, reserved_);
}

}  // namespace weightmap::os
