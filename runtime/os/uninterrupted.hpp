// System calls that a signal may interrupt before they have done anything: on most file systems
// some of them never are, on those that are programs (FUSE) all.
#pragma once

#include <cerrno>

namespace weightmap::os {

// What the call returns, made again as long as it fails with EINTR. Not for close().
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace weightmap::os
