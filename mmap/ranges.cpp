#include "mmap/ranges.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap::mmap {
namespace {

std::uint64_t page_start(std::uint64_t offset) noexcept {
  return offset / os::page_bytes() * os::page_bytes();
}

std::string lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return " (RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) + " bytes)";
}

}  // namespace

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

void yield_range(const MappedFile& mapped, std::uint64_t offset, std::uint64_t length) noexcept {
  const std::uint64_t start = page_start(offset);
  ::madvise(mapped.address_of(start), offset + length - start, MADV_COLD);
}

void allow_readahead(const Mapping& mapping, bool allowed) noexcept {
  ::madvise(const_cast<std::byte*>(mapping.bytes().data()), mapping.bytes().size(),
            allowed ? MADV_NORMAL : MADV_RANDOM);
}

}  // namespace weightmap::mmap
