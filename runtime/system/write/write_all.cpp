#include "runtime/system/write/write_all.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::os {
namespace {

Result<void> check_end(std::uint64_t offset, std::uint64_t length) {
  std::uint64_t end = 0;
  if (!bytes::checked_add(offset, length, &end)) end = ~std::uint64_t{0};
  return check_size_limit(end);
}

}  // namespace

Result<void> write_at(int descriptor, std::uint64_t offset, std::span<const std::byte> content) {
  TRY(check_end(offset, content.size()));
  while (!content.empty()) {
    const ssize_t count = uninterrupted([&] {
      return ::pwrite(descriptor, content.data(), content.size(), static_cast<off_t>(offset));
    });
    if (count == 0) errno = EIO;  // a file accepts at least one byte or reports an error
    // EFAULT means unreadable memory, mapped from a truncated file.
    if (count <= 0)
      return tl::unexpected<Error>(
          os_error(errno == EFAULT ? "read what is to be written to the file" : "write the file",
                   errno, offset));
    content = content.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<void> resize(int descriptor, std::uint64_t bytes) {
  TRY(check_size_limit(bytes));
  if (uninterrupted([&] { return ::ftruncate(descriptor, static_cast<off_t>(bytes)); }) == 0)
    return {};
  return os_failure("make a file of " + std::to_string(bytes) + " bytes");
}

Result<void> reserve_space(int descriptor, std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return {};
  TRY(check_end(offset, length));
  const int result = uninterrupted([&] {
    return ::fallocate(descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(length));
  });
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return os_failure("get " + std::to_string(length) + " bytes of disk space");
}

Result<void> sync(int descriptor) {
  if (uninterrupted([&] { return ::fsync(descriptor); }) == 0) return {};
  return os_failure("write the file to the disk");
}

Result<void> share_blocks(int descriptor, const File& source) {
  TRY(check_size_limit(source.size()));
  if (::ioctl(descriptor, FICLONE, source.descriptor()) == 0) return {};
  return os_failure("share the blocks of the file");
}

Result<void> check_size_limit(std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur)
    return {};
  Error error = os_error("make a file of " + std::to_string(bytes) + " bytes", EFBIG);
  error.message += " (RLIMIT_FSIZE is " + std::to_string(limit.rlim_cur) + ")";
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap::os
