#include "runtime/system/file/write_lease.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "runtime/system/os_error.hpp"

namespace weightmap::os {

Result<std::optional<WriteLease>> WriteLease::take(int descriptor) {
  if (::fcntl(descriptor, F_SETLEASE, F_WRLCK) != 0) {
    if (errno == EAGAIN || errno == EBUSY) return std::nullopt;
    if (errno == EINVAL || errno == EOPNOTSUPP || errno == ENOLCK)
      return failure(ErrorCode::unsupported,
                     "its file system has no leases, by which to know that nobody has it mapped");
    return os_failure("take a lease on the file");
  }
  // Else whoever opens the file has the system send SIGIO, which would end the process.
  ::fcntl(descriptor, F_SETOWN, 0);
  return WriteLease(descriptor);
}

WriteLease::WriteLease(WriteLease&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

WriteLease::~WriteLease() {
  if (descriptor_ >= 0) ::fcntl(descriptor_, F_SETLEASE, F_UNLCK);
}

}  // namespace weightmap::os
