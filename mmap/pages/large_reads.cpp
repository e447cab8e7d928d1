#include "mmap/pages/large_reads.hpp"

#include "mmap/pages/page_table.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

bool comes_as_a_whole(std::span<std::byte> large) {
  if (::madvise(large.data(), os::page_bytes(), MADV_POPULATE_READ) != 0) return false;
  const Result<MappedPages> mapped = MappedPages::of(large);
  return mapped && mapped->bytes(0, large.size()).resident == large.size();
}

}  // namespace

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

}  // namespace weightmap::mmap
