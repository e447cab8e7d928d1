#include "mmap/page_loader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "mmap/pages/file_window.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/facilities.hpp"
#include "runtime/system/file/truncation.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::size_t scratch_bytes = std::size_t{1} << 20;

std::string range_text(std::uint64_t offset, std::uint64_t length) {
  return std::to_string(length) + " bytes at " + std::to_string(offset);
}

// Reads whole huge pages of a file into the page cache. Errors appear when they are mapped.
void read_large(const os::File& file, std::uint64_t offset, std::uint64_t length) {
  const ByteRange part{offset, length};
  const FileWindow window(file, {&part, 1}, os::large_page);
  if (window.bytes().empty()) return;
  reads_large_pages(window);
  ::madvise(window.bytes().data(), window.bytes().size(), MADV_POPULATE_READ);
}

std::uint64_t page_start(std::uint64_t offset) noexcept {
  return offset / os::page_bytes() * os::page_bytes();
}

std::string lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return " (RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) + " bytes)";
}

}  // namespace

std::string_view to_string(LoadMethod method) noexcept {
  constexpr std::array<std::string_view, 3> words = {"populate", "copy", "read"};
  return words.at(static_cast<std::size_t>(method));
}

LoadMethod best_load_method(const Mapping& mapping) noexcept {
  // Unknown advice is refused even for an empty range.
  if (::madvise(const_cast<std::byte*>(mapping.bytes().data()), 0, MADV_POPULATE_READ) != 0)
    return LoadMethod::read;
  const bool is_touch_slow = !mapping.huge_pages() && os::host_takes_back_free_memory();
  return is_touch_slow ? LoadMethod::copy : LoadMethod::populate;
}

void PageLoader::turn_to(const MappedFile& mapped) noexcept {
  if (&mapped.file() != &file()) exact_ = os::UniqueFd();
  mapped_ = mapped;
}

Result<void> PageLoader::load(std::uint64_t offset, std::uint64_t length) {
  if (length < small_range) return load_exactly(offset, length);
  return load_pages(offset, length, false);
}

Result<void> PageLoader::load_exactly(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return {};
  TRY(read_exactly(offset, length));
  return load_pages(offset, length, true);
}

// `is_read` is true if the pages are cached already.
Result<void> PageLoader::load_pages(std::uint64_t offset, std::uint64_t length, bool is_read) {
  const std::uint64_t start = offset / os::page_bytes() * os::page_bytes();
  const std::uint64_t size = offset + length - start;
  if (!is_read && has_to_read(start, size)) TRY(read_all(file().descriptor(), start, size));
  if (method_ != LoadMethod::read) TRY(populate(start, size));
  return mapped_.check_not_lost();
}

bool PageLoader::has_to_read(std::uint64_t offset, std::uint64_t length) const {
  return method_ == LoadMethod::read ||
         (method_ == LoadMethod::copy && !is_surely_cached(mapped_, offset, length));
}

Result<void> PageLoader::load_now(std::uint64_t offset, std::uint64_t length) {
  if (length < small_range) return load(offset, length);
  const std::uint64_t start = offset / os::large_page * os::large_page;
  const std::uint64_t rest = (os::large_page - (offset + length) % os::large_page) % os::large_page;
  const std::uint64_t end = std::min(file().size(), offset + length + rest);
  if (method_ == LoadMethod::populate && mapped_.mapping().huge_pages())
    read_large(file(), start, end - start);
  return load(start, end - start);
}

Result<void> PageLoader::read_exactly(std::uint64_t offset, std::uint64_t length) {
  // What is left of the last page of a truncated file is still cached.
  if (is_surely_cached(mapped_, offset, length))
    return os::check_not_truncated(file(), offset, length);
  if (exact_.get() < 0) exact_ = file().open_without_readahead();
  return read_all(exact_.get() >= 0 ? exact_.get() : file().descriptor(), offset, length);
}

Result<void> PageLoader::populate(std::uint64_t offset, std::uint64_t length) {
  while (::madvise(mapped_.address_of(offset), length, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    const int error_number = errno;
    TRY(os::check_not_truncated(file(), offset, length));
    // EFAULT means that a page could not be read; EIO is the disk's error for that.
    return tl::unexpected<Error>(os::os_error("read " + range_text(offset, length),
                                              error_number == EFAULT ? EIO : error_number, offset));
  }
  return {};
}

Result<void> PageLoader::read_all(int descriptor, std::uint64_t offset, std::uint64_t length) {
  scratch_.resize(scratch_bytes);
  const std::uint64_t end = offset + length;
  while (offset < end) {
    const std::size_t part = std::min<std::uint64_t>(end - offset, scratch_.size());
    const ssize_t got = ::pread(descriptor, scratch_.data(), part, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return tl::unexpected<Error>(os::os_error("read " + range_text(offset, part), errno, offset));
    if (got == 0) return os::check_not_truncated(file(), offset, part);
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> lock_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return {};
  const std::uint64_t start = page_start(offset);
  // Plain mlock() would copy every page of a private writable mapping.
  if (::mlock2(mapped.address_of(start), offset + length - start, MLOCK_ONFAULT) == 0) return {};
  Error refusal =
      os::os_error("lock " + std::to_string(length) + " bytes in memory", errno, offset);
  refusal.message += lock_limit();
  return tl::unexpected<Error>(std::move(refusal));
}

void drop_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept {
  const os::File& file = mapped.file();
  const std::uint64_t start = page_start(offset + os::page_bytes() - 1);
  const bool ends_file = offset + length == file.size();
  const std::uint64_t end = ends_file ? file.size() : page_start(offset + length);
  if (start >= end) return;
  ::madvise(mapped.address_of(start), end - start, MADV_DONTNEED);
  ::posix_fadvise(file.descriptor(), static_cast<off_t>(start), static_cast<off_t>(end - start),
                  POSIX_FADV_DONTNEED);
}

void begin_to_read(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t start = page_start(offset);
  ::madvise(mapped.address_of(start), offset + length - start, MADV_WILLNEED);
}

void unmap_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t start = page_start(offset);
  ::madvise(mapped.address_of(start), offset + length - start, MADV_DONTNEED);
}

void yield_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t start = page_start(offset);
  ::madvise(mapped.address_of(start), offset + length - start, MADV_COLD);
}

void allow_readahead(const Mapping& mapping, bool allowed) noexcept {
  ::madvise(const_cast<std::byte*>(mapping.bytes().data()), mapping.bytes().size(),
            allowed ? MADV_NORMAL : MADV_RANDOM);
}

Result<void> allow_readahead(const Mapping& mapping, std::uint64_t position, std::uint64_t length,
                             bool allowed) {
  const std::uint64_t start = page_start(position);
  if (::madvise(const_cast<std::byte*>(mapping.bytes().data()) + start, position + length - start,
                allowed ? MADV_NORMAL : MADV_RANDOM) == 0)
    return {};
  return os::os_failure("advise " + std::to_string(length) + " bytes of the mapping");
}

}  // namespace weightmap::mmap
