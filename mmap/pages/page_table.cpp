#include "mmap/pages/page_table.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/unique_fd.hpp"

namespace weightmap::mmap {
namespace {

using namespace os::kernel;

constexpr std::size_t regions_a_call = 512;
constexpr std::size_t entries_a_read = 8192;

Result<os::UniqueFd> open_pagemap() {
  os::UniqueFd file(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return os::os_failure("open /proc/self/pagemap");
  return file;
}

// Puts the page-table regions of [begin, end) into `regions`, as many as fit; returns their number,
// and advances `begin`.
Result<std::size_t> scan_some(const os::UniqueFd& pagemap, std::uint64_t& begin, std::uint64_t end,
                              std::span<PageRegion> regions) {
  PagemapScan scan{};
  scan.size = sizeof scan;
  scan.start = begin;
  scan.end = end;
  scan.vec = reinterpret_cast<std::uintptr_t>(regions.data());
  scan.vec_len = regions.size();
  scan.category_mask = page_is_present;
  scan.return_mask = page_is_file | page_is_huge;
  const int count = ::ioctl(pagemap.get(), pagemap_scan, &scan);
  if (count < 0) return os::os_failure("scan /proc/self/pagemap");
  if (scan.walk_end <= begin)
    return failure(ErrorCode::io, "the scan of /proc/self/pagemap does not go on");
  begin = scan.walk_end;
  return static_cast<std::size_t>(count);
}

// Calls `visit` with the number and the entry of each page of `mapping` in the page table; returns
// the number of all pages.
template <class Visit>
Result<std::uint64_t> read_entries(std::span<const std::byte> mapping, Visit&& visit) {
  const std::uint64_t count = (mapping.size() + os::page_bytes() - 1) / os::page_bytes();
  if (count == 0) return count;
  TRY_ASSIGN(const os::UniqueFd pagemap, open_pagemap());
  const std::uint64_t first = reinterpret_cast<std::uintptr_t>(mapping.data()) / os::page_bytes();
  std::vector<std::uint64_t> entries(entries_a_read);
  for (std::uint64_t at = 0; at < count;) {
    const std::uint64_t wanted = std::min<std::uint64_t>(entries.size(), count - at);
    const ssize_t got = ::pread(pagemap.get(), entries.data(), wanted * sizeof entries[0],
                                static_cast<off_t>((first + at) * sizeof entries[0]));
    if (got < 0) return os::os_failure("read /proc/self/pagemap");
    const std::uint64_t read = static_cast<std::uint64_t>(got) / sizeof entries[0];
    if (read == 0) return failure(ErrorCode::io, "/proc/self/pagemap ends early");
    for (std::uint64_t i = 0; i < read; ++i)
      if ((entries[i] & entry_is_present) != 0) visit(at + i, entries[i]);
    at += read;
  }
  return count;
}

}  // namespace

MappedBytes& MappedBytes::operator+=(const MappedBytes& other) noexcept {
  resident += other.resident;
  anonymous += other.anonymous;
  huge = huge && other.huge ? std::optional(*huge + *other.huge) : std::nullopt;
  return *this;
}

MappedPages::MappedPages(std::uint64_t mapped_bytes, bool knows_huge)
    : resident_(mapped_bytes), anonymous_(mapped_bytes) {
  if (knows_huge) huge_.emplace(mapped_bytes);
}

void MappedPages::append(std::uint64_t first, std::uint64_t pages, bool is_anonymous,
                         bool is_huge) {
  append_absent(first);
  resident_.append(pages, true);
  anonymous_.append(pages, is_anonymous);
  if (huge_) huge_->append(pages, is_huge);
}

void MappedPages::append_absent(std::uint64_t end) {
  const std::uint64_t pages = end - resident_.size();
  resident_.append(pages, false);
  anonymous_.append(pages, false);
  if (huge_) huge_->append(pages, false);
}

Result<MappedPages> MappedPages::of(std::span<const std::byte> mapping) {
  Result<MappedPages> scanned = scan(mapping);
  if (!scanned) return read(mapping);
  return scanned;
}

Result<MappedPages> MappedPages::scan(std::span<const std::byte> mapping) {
  MappedPages pages(mapping.size(), true);
  if (mapping.empty()) return pages;
  TRY_ASSIGN(const os::UniqueFd pagemap, open_pagemap());
  const std::uint64_t page = pages.resident_.page_bytes();
  const std::uint64_t count = (mapping.size() + page - 1) / page;
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.data());
  const std::uint64_t end = begin + count * page;
  std::vector<PageRegion> regions(regions_a_call);
  for (std::uint64_t at = begin; at < end;) {
    TRY_ASSIGN(const std::size_t found, scan_some(pagemap, at, end, regions));
    for (const PageRegion& region : std::span(regions).first(found))
      pages.append((region.start - begin) / page, (region.end - region.start) / page,
                   (region.categories & page_is_file) == 0,
                   (region.categories & page_is_huge) != 0);
  }
  pages.append_absent(count);
  return pages;
}

Result<MappedPages> MappedPages::read(std::span<const std::byte> mapping) {
  MappedPages pages(mapping.size(), false);
  const Result<std::uint64_t> count =
      read_entries(mapping, [&](std::uint64_t page, std::uint64_t entry) {
        pages.append(page, 1, (entry & entry_is_file) == 0, false);
      });
  if (!count) return tl::unexpected<Error>(count.error());
  pages.append_absent(*count);
  return pages;
}

Result<std::uint64_t> unshared_copies(std::span<const std::byte> mapping) {
  std::uint64_t copies = 0;
  const Result<std::uint64_t> count =
      read_entries(mapping, [&](std::uint64_t, std::uint64_t entry) {
        if ((entry & entry_is_file) == 0 && (entry & entry_is_exclusive) != 0) ++copies;
      });
  if (!count) return count;
  return copies * os::page_bytes();
}

MappedBytes MappedPages::bytes(std::uint64_t offset, std::uint64_t length) const noexcept {
  MappedBytes bytes;
  bytes.resident = resident_.set_bytes(offset, length);
  bytes.anonymous = anonymous_.set_bytes(offset, length);
  bytes.huge = huge_ ? std::optional(huge_->set_bytes(offset, length)) : std::nullopt;
  return bytes;
}

}  // namespace weightmap::mmap
