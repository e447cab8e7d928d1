#include "mmap/pages/file_window.hpp"

#include <sys/mman.h>

namespace weightmap::mmap {
namespace {

bool map_part(std::byte* address, const os::File& file, const ByteRange& part) noexcept {
  for (const int sharing : {MAP_SHARED, MAP_PRIVATE})  // some file systems refuse the first
    if (::mmap(address, part.length, PROT_READ, sharing | MAP_FIXED, file.descriptor(),
               static_cast<off_t>(part.offset)) != MAP_FAILED)
      return true;
  return false;
}

}  // namespace

FileWindow::FileWindow(const os::File& file, std::span<const ByteRange> parts,
                       std::uint64_t alignment) noexcept {
  std::uint64_t all = 0;
  for (const ByteRange& part : parts) all += part.length;
  reservation_ = Reservation(all, alignment, Reservation::Access::none);
  if (reservation_.bytes().empty()) return;
  std::byte* next = reservation_.bytes().data();
  for (const ByteRange& part : parts) {
    if (!map_part(next, file, part)) return;
    next += part.length;
  }
  bytes_ = reservation_.bytes();
}

}  // namespace weightmap::mmap
