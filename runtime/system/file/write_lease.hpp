// A lease on a file that is to be written to in place.
#pragma once

#include <optional>

#include "weightmap/result.hpp"

namespace weightmap::os {

// When it is taken, nobody else has the file open or mapped. Who opens it meanwhile waits until it
// ends, or for /proc/sys/fs/lease-break-time (45 seconds), whichever comes first (fcntl(2),
// F_SETLEASE).
class WriteLease {
 public:
  // Of a file that this process has open once, for reading and writing; `descriptor` outlives the
  // lease. Returns nullopt if it is open elsewhere, this process included. Fails with unsupported
  // if the file system has no leases, with io if the file is another user's, or the system refuses.
  static Result<std::optional<WriteLease>> take(int descriptor);
  WriteLease(WriteLease&& other) noexcept;
  WriteLease& operator=(WriteLease&& other) = delete;
  ~WriteLease();

 private:
  explicit WriteLease(int descriptor) noexcept : descriptor_(descriptor) {}
  int descriptor_;  // -1: none
};

}  // namespace weightmap::os
