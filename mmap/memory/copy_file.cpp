#include "mmap/memory/copy_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "mmap/direct_reader.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"
#include "mmap/pages/mapped_memory.hpp"
#include "mmap/pages/page_cache.hpp"

namespace weightmap::os {
namespace {

#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;  // Linux 6.1; older headers do not name it
#endif

constexpr std::uint64_t large_page = std::uint64_t{2} << 20;
constexpr std::uint64_t step_bytes = 4 * large_page;  // as many as are read at a time

std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) noexcept {
  return (size + unit - 1) / unit * unit;
}

// A writable mapping of the new file, at an address that large pages can lie at.
class Target {
 public:
  Target(int memory, std::uint64_t bytes) : memory_(memory), size_(round_up(bytes, page_bytes())) {
    reserved_ = ::mmap(nullptr, size_ + large_page, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved_ == MAP_FAILED) return;
    const auto address = reinterpret_cast<std::uintptr_t>(reserved_);
    auto* const aligned =
        static_cast<std::byte*>(reserved_) + (round_up(address, large_page) - address);
    if (::mmap(aligned, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) !=
        MAP_FAILED)
      bytes_ = {aligned, size_};
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    if (reserved_ != MAP_FAILED) ::munmap(reserved_, size_ + large_page);
  }

  // Whole pages; empty, with errno set, if it could not be mapped.
  std::span<std::byte> bytes() const noexcept { return bytes_; }

  // Sees to it that there is memory for this range, so that filling it raises no signal.
  Result<void> allocate(std::uint64_t offset, std::uint64_t length) {
    for (std::uint64_t at = offset; at < offset + length && collapses_; at += large_page)
      if (offset + length - at >= large_page) collapse(at);
    if (reserve(offset, length)) return {};
    return tl::unexpected<Error>(
        os_error("get " + std::to_string(length) + " bytes of shared memory", errno, offset));
  }

 private:
  bool reserve(std::uint64_t offset, std::uint64_t length) const noexcept {
    int result = 0;
    do {
      result = ::fallocate(memory_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                           static_cast<off_t>(length));
    } while (result != 0 && errno == EINTR);
    return result == 0;
  }

  // One page that is there becomes a large one, with nothing to copy.
  void collapse(std::uint64_t offset) noexcept {
    if (!reserve(offset, page_bytes())) return;
    if (::madvise(&bytes_[offset], large_page, MADV_COLLAPSE) != 0 && errno == EINVAL)
      collapses_ = false;
  }

  int memory_;
  std::uint64_t size_;
  void* reserved_ = MAP_FAILED;
  std::span<std::byte> bytes_;
  bool collapses_ = true;
};

class Copier {
 public:
  Copier(const File& source, std::span<std::byte> target)
      : source_(source), target_(target), direct_(source) {
    if (Result<CachedPages> cached = CachedPages::of(source); cached) cached_ = std::move(*cached);
  }

  // `offset` is a multiple of the page size.
  Result<void> copy(std::uint64_t offset, std::uint64_t length) {
    if (cached_ && cached_->cached_bytes(offset, length) == length) {
      report_.cached_bytes += length;
      return source_.read(offset, target_.subspan(offset, length));
    }
    if (report_.why_not_direct.empty()) {
      const std::uint64_t pages = round_up(length, page_bytes());
      const Result<void> read = direct_.read(offset, target_.subspan(offset, pages));
      if (read) report_.direct_bytes += length;
      if (read || read.error().code != ErrorCode::unsupported) return read;
      report_.why_not_direct = read.error().message;
    }
    return copy_through_cache(offset, length);
  }

  CopyReport& report() noexcept { return report_; }

 private:
  Result<void> copy_through_cache(std::uint64_t offset, std::uint64_t length) {
    if (Result<void> read = source_.read(offset, target_.subspan(offset, length)); !read)
      return read;
    if (!cached_) return {};  // not known, so left as it is
    std::uint64_t begin = offset;
    for (std::uint64_t at = offset; at < offset + length; at += page_bytes()) {
      if (cached_->cached_bytes(at, page_bytes()) == 0) continue;
      drop(begin, at);
      begin = at + page_bytes();
    }
    drop(begin, offset + length);
    return {};
  }

  void drop(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    report_.dropped_bytes += end - begin;
    ::posix_fadvise(source_.descriptor(), static_cast<off_t>(begin),
                    static_cast<off_t>(round_up(end - begin, page_bytes())), POSIX_FADV_DONTNEED);
  }

  const File& source_;
  std::span<std::byte> target_;
  DirectReader direct_;
  std::optional<CachedPages> cached_;  // before; nullopt where the system does not tell
  CopyReport report_;
};

}  // namespace

Result<CopyReport> copy_to_memory(
    const File& source, int memory,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::uint64_t all = source.size();
  Target target(memory, all);
  if (target.bytes().empty())
    return tl::unexpected<Error>(os_error("map " + std::to_string(all) + " bytes", errno));
  ::madvise(target.bytes().data(), target.bytes().size(), MADV_HUGEPAGE);
  source.advise_metadata();  // nothing is read ahead
  Copier copier(source, target.bytes());
  for (std::uint64_t at = 0; at < all; at += step_bytes) {
    const std::uint64_t length = std::min(step_bytes, all - at);
    if (Result<void> ok = target.allocate(at, length); !ok)
      return tl::unexpected<Error>(ok.error());
    if (Result<void> ok = copier.copy(at, length); !ok) return tl::unexpected<Error>(ok.error());
    if (progress) progress(at + length, all);
  }
  CopyReport report = std::move(copier.report());
  const std::span<const std::byte> mapped(target.bytes());
  if (const Result<MappedMemory> held = mapped_memory(mapped); held) report.huge_bytes = held->huge;
  return report;
}

}  // namespace weightmap::os
