#include "mmap/fill.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "mmap/cut_short.hpp"
#include "mmap/memory/private_pages.hpp"
#include "mmap/os_error.hpp"
#include "mmap/pages/large_reads.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/populate.hpp"

namespace weightmap::os {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::size_t scratch_bytes = std::size_t{1} << 20;

void* address_of(const Mapping& mapping, std::uint64_t page_start) noexcept {
  // madvise takes the pages it is told about; that they are only read is between it and the caller.
  return const_cast<std::byte*>(mapping.bytes().data() + page_start);
}

std::uint64_t page_start(std::uint64_t offset) noexcept { return offset / page * page; }

std::string range_text(std::uint64_t offset, std::uint64_t length) {
  return std::to_string(length) + " bytes at " + std::to_string(offset);
}

}  // namespace

bool knows_method(const Mapping& mapping, FillMethod method) noexcept {
  if (method != FillMethod::populate) return true;
  // An unknown advice is refused even for no bytes at all.
  return ::madvise(address_of(mapping, 0), 0, MADV_POPULATE_READ) == 0;
}

Result<void> Filler::fill(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return {};
  if (Result<void> filled = bring_in(offset, length); !filled) return filled;
  return mapping_.check_not_lost();
}

Result<void> Filler::bring_in(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t start = page_start(offset);
  const std::uint64_t size = offset + length - start;
  switch (method_) {
    case FillMethod::populate:
      return populate(start, size);
    case FillMethod::fault:
      return touch(start, size);
    case FillMethod::sequential:
      return touch_in_order(start, size);
    case FillMethod::read:
      return read_all(file_.descriptor(), start, size);
    case FillMethod::readahead:
      if (::readahead(file_.descriptor(), static_cast<off64_t>(start), size) != 0)
        return tl::unexpected<Error>(
            os_error("read ahead " + range_text(start, size), errno, start));
      return {};
    case FillMethod::willneed:
      if (::madvise(address_of(mapping_, start), size, MADV_WILLNEED) != 0)
        return tl::unexpected<Error>(os_error("ask for " + range_text(start, size), errno, start));
      return {};
    case FillMethod::direct:
      return replace(start, size);
  }
  return {};
}

Result<void> Filler::fill_alone(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t first = (offset + large_read - 1) / large_read * large_read;
  if (!uses_page_cache()) return fill(offset, length);
  void* const address = address_of(mapping_, page_start(offset));
  const std::uint64_t size = offset + length - page_start(offset);
  // Where pages come one at a time this needs what a warm-up may have switched off.
  const bool exactly = reads_large_pages(mapping_, first);
  ::madvise(address, size, exactly ? MADV_RANDOM : MADV_NORMAL);
  const Result<void> filled = fill(offset, length);
  ::madvise(address, size, MADV_NORMAL);
  return filled;
}

Result<void> Filler::fill_exactly(std::uint64_t offset, std::uint64_t length) {
  if (!uses_page_cache()) return fill(offset, length);
  if (length == 0) return {};
  // What is left of the last page of a file that was cut short is still cached.
  if (is_surely_cached(file_, offset, length)) return check_not_cut_short(file_, offset, length);
  if (exact_.get() < 0) {
    // The same file whatever its name is now, with a readahead state of its own.
    const std::string self = "/proc/self/fd/" + std::to_string(file_.descriptor());
    exact_ = UniqueFd(::open(self.c_str(), O_RDONLY | O_CLOEXEC));
    if (exact_.get() >= 0) ::posix_fadvise(exact_.get(), 0, 0, POSIX_FADV_RANDOM);
  }
  const int descriptor = exact_.get() >= 0 ? exact_.get() : file_.descriptor();
  return read_all(descriptor, offset, length);
}

Result<void> Filler::populate(std::uint64_t offset, std::uint64_t length) {
  while (::madvise(address_of(mapping_, offset), length, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    const int error_number = errno;
    if (Result<void> ok = check_not_cut_short(file_, offset, length); !ok) return ok;
    // EFAULT says that a page could not be read, which the disk calls EIO.
    return tl::unexpected<Error>(os_error("read " + range_text(offset, length),
                                          error_number == EFAULT ? EIO : error_number, offset));
  }
  return {};
}

Result<void> Filler::touch(std::uint64_t offset, std::uint64_t length) {
  if (Result<void> ok = check_not_cut_short(file_, offset, length); !ok) return ok;
  const std::span<const std::byte> bytes = mapping_.bytes().subspan(offset, length);
  for (std::uint64_t at = 0; at < bytes.size(); at += page)
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
  return {};
}

Result<void> Filler::touch_in_order(std::uint64_t offset, std::uint64_t length) {
  void* const address = address_of(mapping_, offset);
  ::madvise(address, length, MADV_SEQUENTIAL);
  const Result<void> touched = touch(offset, length);
  ::madvise(address, length, MADV_NORMAL);
  return touched;
}

Result<void> Filler::replace(std::uint64_t offset, std::uint64_t length) {
  if (Result<void> ok = check_replaceable(mapping_); !ok) return ok;
  Result<PrivatePages> pages = PrivatePages::for_range(mapping_, offset, length);
  if (!pages) return tl::unexpected<Error>(pages.error());
  if (Result<void> ok = direct_.read(offset, pages->bytes()); !ok) return ok;
  return pages->take_place();
}

Result<void> Filler::read_all(int descriptor, std::uint64_t offset, std::uint64_t length) {
  scratch_.resize(scratch_bytes);
  const std::uint64_t end = offset + length;
  while (offset < end) {
    const std::size_t part = std::min<std::uint64_t>(end - offset, scratch_.size());
    const ssize_t got = ::pread(descriptor, scratch_.data(), part, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return tl::unexpected<Error>(os_error("read " + range_text(offset, part), errno, offset));
    if (got == 0) return check_not_cut_short(file_, offset, part);
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace weightmap::os
