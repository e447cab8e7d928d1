// Whether snapshots can be made and restored by this user on this machine.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Returns criu's version. Fails as criu_version() does, with io where a permission is missing or
// the namespaces of a command cannot be made, and with unsupported, in criu's own words, where
// `criu check` fails.
Result<std::string> ability();

}  // namespace weightmap::cli::snapshot
