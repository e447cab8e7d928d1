#include "mmap/write/write_all.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "mmap/os_error.hpp"
#include "mmap/uninterrupted.hpp"
#include "mmap/write/size_limit.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"

namespace weightmap::os {
namespace {

// Of what can seek only regular files are limited; others have no position.
Result<void> check_position(int descriptor, std::uint64_t more) {
  const off_t position = ::lseek(descriptor, 0, SEEK_CUR);
  std::uint64_t end = 0;
  if (position < 0) return {};
  if (!bytes::checked_add(static_cast<std::uint64_t>(position), more, &end)) end = ~end;
  return check_size_limit(end);
}

}  // namespace

Result<void> append(int descriptor, std::span<const std::byte> content) {
  TRY(check_position(descriptor, content.size()));
  while (!content.empty()) {
    const ssize_t count =
        uninterrupted([&] { return ::write(descriptor, content.data(), content.size()); });
    if (count < 0) return os_failure("write to descriptor " + std::to_string(descriptor));
    content = content.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> content) {
  while (!content.empty()) {
    const ssize_t count = uninterrupted([&] {
      return ::pwrite(descriptor, content.data(), content.size(), static_cast<off_t>(offset));
    });
    if (count == 0) errno = EIO;  // a file takes at least one byte, or says why not
    // EFAULT: memory that cannot be read, mapped from a file that was truncated.
    if (count <= 0)
      return tl::unexpected<Error>(
          os_error(errno == EFAULT ? "read what is to be written to the file" : "write the file",
                   errno, offset));
    content = content.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace weightmap::os
