#include "mmap/pages/file_window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "mmap/pages/page_table.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

bool comes_as_a_whole(std::span<std::byte> large) {
  if (::madvise(large.data(), os::page_bytes(), MADV_POPULATE_READ) != 0) return false;
  const Result<MappedPages> mapped = MappedPages::of(large);
  return mapped && mapped->bytes(0, large.size()).resident == large.size();
}

bool is_resident(std::span<const std::byte> page) {
  const Result<MappedPages> pages = MappedPages::of(page);
  return pages && pages->bytes(0, page.size()).resident > 0;
}

std::string path_of(const os::File& file) {
  return "/proc/self/fd/" + std::to_string(file.descriptor());
}

// Nullopt if the page does not come in, or the file cannot be opened.
std::optional<bool> stays_at_open(const os::File& file, std::span<std::byte> page) {
  if (::madvise(page.data(), page.size(), MADV_POPULATE_READ) != 0 || !is_resident(page))
    return std::nullopt;
  const int again = ::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC);
  if (again < 0) return std::nullopt;
  ::close(again);
  return is_resident(page);
}

}  // namespace

bool FileWindow::map_part(std::span<std::byte> at, const os::File& file,
                          std::uint64_t offset) noexcept {
  for (const int sharing : {MAP_SHARED, MAP_PRIVATE}) {  // some file systems refuse the first
    // Readable, since an emulator of user mode tells what is cached of such memory only.
    if (::mmap(at.data(), at.size(), PROT_READ, sharing | MAP_FIXED, file.descriptor(),
               static_cast<off_t>(offset)) != MAP_FAILED)
      return true;
    if (!reservation_.take_again(at, errno)) return false;
  }
  return false;
}

FileWindow::FileWindow(const os::File& file, std::span<const ByteRange> parts,
                       std::uint64_t alignment) noexcept {
  std::uint64_t all = 0;
  for (const ByteRange& part : parts) all += part.length;
  reservation_ = Reservation(all, alignment, Reservation::Access::none);
  if (reservation_.bytes().empty()) return;
  std::byte* next = reservation_.bytes().data();
  for (const ByteRange& part : parts) {
    if (!map_part({next, part.length}, file, part.offset)) return;
    next += part.length;
  }
  bytes_ = reservation_.bytes();
}

bool reads_large_pages(const os::File& file, std::uint64_t offset) {
  if (!bytes::contains(file.size(), offset, os::large_page)) return false;
  const ByteRange part{offset, os::large_page};
  return reads_large_pages(FileWindow(file, {&part, 1}, os::large_page));
}

bool reads_large_pages(const FileWindow& window) {
  const std::span<std::byte> all = window.bytes();
  if (all.size() < os::large_page) return false;
  ::madvise(all.data(), all.size(), MADV_HUGEPAGE);
  ::madvise(all.data(), all.size(), MADV_RANDOM);
  if (comes_as_a_whole(all.first(os::large_page))) return true;
  ::madvise(all.data(), all.size(), MADV_NORMAL);
  return false;
}

bool drops_pages_at_open(const os::File& file) {
  if (file.size() == 0 || !(os::is_overlay(file) || os::open_may_drop_cache(path_of(file))))
    return false;
  const ByteRange first{0, std::min(file.size(), os::page_bytes())};
  const FileWindow window(file, {&first, 1}, os::page_bytes());
  if (window.bytes().empty()) return false;
  const std::span<std::byte> page(window.bytes().data(), os::page_bytes());
  ::madvise(page.data(), page.size(), MADV_RANDOM);  // or more would be read
  // Twice, since the system may take a page back at any time.
  return stays_at_open(file, page) == false && stays_at_open(file, page) == false;
}

}  // namespace weightmap::mmap
