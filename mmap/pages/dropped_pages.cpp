#include "mmap/pages/dropped_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "mmap/pages/file_window.hpp"
#include "mmap/pages/page_table.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

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
