// Whether snapshots can be made and restored by this user on this machine.
#pragma once

#include <string>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Returns a sentence about the first thing that is missing, from the text of /proc/PID/status
// (proc(5)); empty if nothing is. criu needs CAP_SYS_ADMIN to look into processes, the namespaces
// and fanotify as well; CAP_NET_ADMIN to restore sockets; and CAP_SYS_TIME to have clocks go on.
// Under a seccomp filter it cannot look into any process.
std::string missing_permission(std::string_view status);

// The same of this process.
std::string missing_permission();

// Returns criu's version. Fails as criu_version() does, with io where a permission is missing or
// the namespaces of a command cannot be made, and with unsupported, in criu's own words, where
// `criu check` fails.
Result<std::string> ability();

}  // namespace weightmap::cli::snapshot
