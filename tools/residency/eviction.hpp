// Drops files from the page cache, for `residency --evict`.
#pragma once

#include <string>
#include <vector>

#include "tools/support/output.hpp"

namespace weightmap::cli {

// Goes on with the next file after a failure. Returns the exit code: exit_failed if any of a file
// stays.
int evict_files(Output& out, const std::vector<std::string>& names, bool json);

}  // namespace weightmap::cli
