#include "mmap/pages/page_cache.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "mmap/pages/file_window.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/kernel.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

constexpr std::uint64_t window_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t piece_bytes = std::uint64_t{2} << 20;  // whole pages on every machine
constexpr int max_evictions = 5;

std::uint64_t pages_in(std::uint64_t length) noexcept {
  return (length + os::page_bytes() - 1) / os::page_bytes();
}

tl::unexpected<Error> hidden() {
  return tl::unexpected<Error>(os::os_error(
      "learn what is cached, which the system tells to the file's owner and to those who "
      "may write to it",
      EPERM));
}

// Sets the lowest bit for each cached page from `address` on.
Result<void> ask(const void* address, std::size_t size, std::vector<unsigned char>& pages) {
  int result = 0;
  do {
    result = ::mincore(const_cast<void*>(address), size, pages.data());
  } while (result != 0 && errno == EAGAIN);
  if (result != 0) return os::os_failure("ask which pages are cached");
  return {};
}

// A system that hides cached pages reports every page as cached, even one far behind the end of the
// file, which is never cached.
bool tells_what_is_cached(const os::File& file) {
  const std::uint64_t page = os::page_bytes();
  std::uint64_t beyond = 0;
  if (!bytes::checked_add(file.size() / page * page, window_bytes, &beyond)) return true;
  const ByteRange part{beyond, page};
  const FileWindow window(file, {&part, 1}, page);
  if (window.bytes().empty()) return true;
  std::vector<unsigned char> cached(1);
  return !ask(window.bytes().data(), static_cast<std::size_t>(page), cached) ||
         (cached[0] & 1) == 0;
}

using os::kernel::Cachestat;

tl::expected<Cachestat, int> cachestat(const os::File& file, std::uint64_t offset,
                                       std::uint64_t length) noexcept {
  os::kernel::CachestatRange range{offset, length};
  Cachestat counts{};
  if (::syscall(os::kernel::cachestat_call, file.descriptor(), &range, &counts, 0u) != 0)
    return tl::unexpected<int>(errno);
  return counts;
}

// The last page counts with the file's bytes in it. A length of 0 would mean the rest of the file.
tl::expected<std::uint64_t, int> count_cached(const os::File& file) noexcept {
  const std::uint64_t page = os::page_bytes();
  const std::uint64_t tail = file.size() % page;
  std::uint64_t cached = 0;
  for (const auto [offset, length, bytes_a_page] :
       {std::array{std::uint64_t{0}, file.size() - tail, page},
        std::array{file.size() - tail, tail, tail}}) {
    if (length == 0) continue;
    const tl::expected<Cachestat, int> counts = cachestat(file, offset, length);
    if (!counts) return tl::unexpected<int>(counts.error());
    cached += counts->cached * bytes_a_page;
  }
  return std::min(cached, file.size());
}

// Returns whether a range is fully cached or fully uncached; nullopt if mixed or unknown. Much
// faster than a query for each page if the cache holds huge pages.
std::optional<bool> is_cached_evenly(const os::File& file, std::uint64_t offset,
                                     std::uint64_t length) noexcept {
  const tl::expected<Cachestat, int> counts = cachestat(file, offset, length);
  if (!counts) return std::nullopt;
  if (counts->cached == 0) return false;
  if (counts->cached == pages_in(length)) return true;
  return std::nullopt;
}

}  // namespace

Result<CachedPages> CachedPages::of(const os::File& file) {
  if (!tells_what_is_cached(file)) return hidden();
  CachedPages cached(file.size());
  const bool has_counts = count_cached(file).value_or(0) > 0;  // see cached_bytes_of()
  for (std::uint64_t offset = 0; offset < file.size(); offset += window_bytes) {
    const std::uint64_t size = std::min(window_bytes, file.size() - offset);
    TRY(cached.append(file, offset, size, has_counts));
  }
  return cached;
}

Result<void> CachedPages::append(const os::File& file, std::uint64_t offset, std::uint64_t size,
                                 bool has_counts) {
  const ByteRange part{offset, size};
  const FileWindow window(file, {&part, 1}, os::page_bytes());
  if (window.bytes().empty()) return os::os_failure("map " + std::to_string(size) + " bytes");
  for (std::uint64_t at = 0; at < size; at += piece_bytes) {
    const std::uint64_t length = std::min(piece_bytes, size - at);
    std::optional<bool> evenly;
    if (has_counts) evenly = is_cached_evenly(file, offset + at, length);
    if (evenly) {
      pages_.append(pages_in(length), *evenly);
      continue;
    }
    TRY(append(window.bytes().data() + at, length));
  }
  return {};
}

Result<void> CachedPages::append(const void* address, std::uint64_t size) {
  std::vector<unsigned char> pages(pages_in(size));
  TRY(ask(address, static_cast<std::size_t>(size), pages));
  for (const unsigned char page : pages) pages_.append(1, (page & 1) != 0);
  return {};
}

Result<void> check_tells_what_is_cached(const os::File& file) {
  if (!tells_what_is_cached(file)) return hidden();
  return {};
}

bool is_cached(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t start = offset / os::page_bytes() * os::page_bytes();
  const std::uint64_t size = offset + length - start;
  if (is_cached_evenly(mapped.file(), start, size) == true) return true;
  std::vector<unsigned char> pages(pages_in(size));
  if (!ask(mapped.address_of(start), static_cast<std::size_t>(size), pages)) return false;
  return std::all_of(pages.begin(), pages.end(),
                     [](unsigned char page) { return (page & 1) != 0; });
}

Result<std::uint64_t> cached_bytes_of(const os::File& file) {
  const tl::expected<std::uint64_t, int> counted = count_cached(file);
  if (!counted && counted.error() == EPERM) return hidden();
  // On a stacked file system (overlayfs) the pages belong to the lower file, which only a mapping
  // reaches; so a count of zero must be confirmed there.
  if (counted && *counted > 0) return *counted;
  TRY_ASSIGN(const CachedPages pages, CachedPages::of(file));
  return pages.cached_bytes();
}

bool is_surely_cached(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) {
  const os::File& file = mapped.file();
  const std::uint64_t start = offset / os::page_bytes() * os::page_bytes();
  if (is_cached_evenly(file, start, offset + length - start) == true) return true;
  return os::is_overlay(file) && is_cached(mapped, offset, length) && tells_what_is_cached(file);
}

std::uint64_t unwritten_bytes_of(const os::File& file) noexcept {
  const tl::expected<Cachestat, int> counts = cachestat(file, 0, file.size());
  if (!counts) return 0;
  return std::min(file.size(), (counts->dirty + counts->in_writeback) * os::page_bytes());
}

bool lives_in_memory(const os::File& file) noexcept {
  return file.is_in_memory() || lives_in_memory(file.descriptor());
}

bool lives_in_memory(int descriptor) noexcept {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC ||
         status.f_type == HUGETLBFS_MAGIC;
}

std::uint64_t bytes_living_in_memory(const os::File& file) noexcept {
  constexpr std::uint64_t block = 512;  // POSIX: of st_blocks, whatever st_blksize is
  struct stat status {};
  if (!lives_in_memory(file) || ::fstat(file.descriptor(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * block;
}

namespace {

// Works in pieces, for progress and cancellation.
Result<void> evict_once(const os::File& file, const Progress& progress) {
  constexpr std::uint64_t piece = std::uint64_t{256} << 20;
  for (std::uint64_t at = 0; at < file.size(); at += piece) {
    // The last piece reaches to the current end of the file.
    const std::uint64_t length = file.size() - at > piece ? piece : 0;
    if (const int error = ::posix_fadvise(file.descriptor(), static_cast<off_t>(at),
                                          static_cast<off_t>(length), POSIX_FADV_DONTNEED);
        error != 0)
      return tl::unexpected<Error>(os::os_error("evict the file from the page cache", error));
    TRY(go_on(progress, length == 0 ? file.size() : at + piece, file.size()));
  }
  return {};
}

}  // namespace

Result<std::uint64_t> evict(const os::File& file, const Progress& progress) {
  Result<std::uint64_t> stays = cached_bytes_of(file);
  bool fewer = true;
  for (int i = 0; i < max_evictions && fewer && stays && *stays > 0; ++i) {
    TRY(evict_once(file, progress));
    const std::uint64_t before = *stays;
    stays = cached_bytes_of(file);
    fewer = stays && *stays < before;
  }
  return stays;
}

}  // namespace weightmap::mmap
