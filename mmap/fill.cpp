#include "mmap/fill.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "mmap/kernel.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"
#include "mmap/pages/file_window.hpp"
#include "mmap/pages/large_reads.hpp"
#include "mmap/pages/page_cache.hpp"
#include "mmap/truncation.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::os {
namespace {

constexpr std::size_t scratch_bytes = std::size_t{1} << 20;

std::string range_text(std::uint64_t offset, std::uint64_t length) {
  return std::to_string(length) + " bytes at " + std::to_string(offset);
}

// Reads whole huge pages of a file into the page cache. Errors appear when they are mapped.
void read_large(const File& file, std::uint64_t offset, std::uint64_t length) {
  const ByteRange part{offset, length};
  const FileWindow window(file, {&part, 1}, large_page);
  if (window.bytes().empty()) return;
  reads_large_pages(window);
  ::madvise(window.bytes().data(), window.bytes().size(), MADV_POPULATE_READ);
}

}  // namespace

std::string_view to_string(FillMethod method) noexcept {
  return method == FillMethod::populate ? "populate" : "read";
}

FillMethod best_fill_method(const Mapping& mapping) noexcept {
  // Unknown advice is refused even for an empty range.
  return ::madvise(const_cast<std::byte*>(mapping.bytes().data()), 0, MADV_POPULATE_READ) == 0
             ? FillMethod::populate
             : FillMethod::read;
}

void Filler::turn_to(const MappedFile& mapped) noexcept {
  if (&mapped.file() != &file()) exact_ = UniqueFd();
  mapped_ = mapped;
}

Result<void> Filler::fill(std::uint64_t offset, std::uint64_t length) {
  if (length < small_range) return fill_exactly(offset, length);
  return fill_pages(offset, length, false);
}

Result<void> Filler::fill_exactly(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return {};
  TRY(read_exactly(offset, length));
  return fill_pages(offset, length, true);
}

// `is_read` is true if the pages are cached already.
Result<void> Filler::fill_pages(std::uint64_t offset, std::uint64_t length, bool is_read) {
  const std::uint64_t start = offset / page_bytes() * page_bytes();
  const std::uint64_t size = offset + length - start;
  if (method_ == FillMethod::populate)
    TRY(populate(start, size));
  else if (!is_read)
    TRY(read_all(file().descriptor(), start, size));
  return mapped_.check_not_lost();
}

Result<void> Filler::fill_now(std::uint64_t offset, std::uint64_t length) {
  if (length < small_range) return fill(offset, length);
  const std::uint64_t start = offset / large_page * large_page;
  const std::uint64_t rest = (large_page - (offset + length) % large_page) % large_page;
  const std::uint64_t end = std::min(file().size(), offset + length + rest);
  if (method_ == FillMethod::populate && mapped_.mapping().huge_pages())
    read_large(file(), start, end - start);
  return fill(start, end - start);
}

Result<void> Filler::read_exactly(std::uint64_t offset, std::uint64_t length) {
  // The remaining part of a truncated file's last page is still cached.
  if (is_surely_cached(file(), offset, length)) return check_not_truncated(file(), offset, length);
  if (exact_.get() < 0) {
    // Opens the same file, whatever its name is now, with a readahead state of its own.
    const std::string self = "/proc/self/fd/" + std::to_string(file().descriptor());
    exact_ = UniqueFd(::open(self.c_str(), O_RDONLY | O_CLOEXEC));
    if (exact_.get() >= 0) ::posix_fadvise(exact_.get(), 0, 0, POSIX_FADV_RANDOM);
  }
  return read_all(exact_.get() >= 0 ? exact_.get() : file().descriptor(), offset, length);
}

Result<void> Filler::populate(std::uint64_t offset, std::uint64_t length) {
  while (::madvise(mapped_.address_of(offset), length, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    const int error_number = errno;
    TRY(check_not_truncated(file(), offset, length));
    // EFAULT means that a page could not be read; EIO is the disk's error for that.
    return tl::unexpected<Error>(os_error("read " + range_text(offset, length),
                                          error_number == EFAULT ? EIO : error_number, offset));
  }
  return {};
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
    if (got == 0) return check_not_truncated(file(), offset, part);
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace weightmap::os
