#include "runtime/system/memory/own_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

#include "runtime/system/os_error.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/unique_fd.hpp"

namespace weightmap::os {
namespace {

tl::unexpected<Error> missing(std::uint64_t offset, int error_number) {
  return tl::unexpected<Error>(os_error("read memory that was mapped", error_number, offset));
}

// Returns the number of bytes, or -1, as read() does.
ssize_t read_by_call(std::span<const std::byte> from, std::span<std::byte> to) noexcept {
  const iovec local{to.data(), to.size()};
  const iovec remote{const_cast<std::byte*>(from.data()), from.size()};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
}

Result<void> copy_by_file(std::span<const std::byte> from, std::span<std::byte> to) {
  const UniqueFd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  if (memory.get() < 0) return os_failure("open /proc/self/mem");
  for (std::size_t done = 0; done < from.size();) {
    const auto address = reinterpret_cast<std::uintptr_t>(from.data() + done);
    const ssize_t count =
        ::pread(memory.get(), to.data() + done, from.size() - done, static_cast<off_t>(address));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return missing(done, count == 0 ? EFAULT : errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

Result<void> copy_own_memory(std::span<const std::byte> from, std::span<std::byte> to) {
  for (std::size_t done = 0; done < from.size();) {
    const ssize_t count = read_by_call(from.subspan(done), to.subspan(done));
    if (count < 0 && (errno == ENOSYS || errno == EPERM)) return copy_by_file(from, to);
    if (count <= 0) return missing(done, count == 0 ? EFAULT : errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

std::uint64_t resident_file_bytes() noexcept {
  const UniqueFd statm(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  std::array<char, 128> text{};  // pages: all, resident, of these shared, ...
  if (::read(statm.get(), text.data(), text.size() - 1) <= 0) return 0;
  std::uint64_t pages = 0;
  if (std::sscanf(text.data(), "%*s %*s %" SCNu64, &pages) != 1) return 0;
  return pages * page_bytes();
}

}  // namespace weightmap::os
