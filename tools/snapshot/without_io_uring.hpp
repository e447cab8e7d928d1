// Processes without io_uring, whose rings criu cannot dump. Libraries that use it where it is there
// (libuv, and so uvloop) then use other calls.
#pragma once

namespace weightmap::cli::snapshot {

// Has io_uring_setup() fail with ENOSYS in this process and its descendants, by a seccomp filter,
// which an image keeps. Needs CAP_SYS_ADMIN; without it, or without seccomp, nothing changes.
void forbid_io_uring() noexcept;

}  // namespace weightmap::cli::snapshot
