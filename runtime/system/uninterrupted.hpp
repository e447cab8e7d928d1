// Repeats system calls that a signal interrupted: on most file systems some of them never are, in
// FUSE file systems all may be.
#pragma once

#include <cerrno>

namespace weightmap::os {

// Returns the result of the call, repeated while it fails with EINTR. Not for close().
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace weightmap::os
