// Lists, checks and removes the snapshots of a folder, for `run --list`, `--check` and `--remove`.
#pragma once

#include <string>

#include "tools/support/output.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Returns whether a start would use each of them. `checks`: compares the checksums of all files of
// the images, too.
Result<bool> list_snapshots(Output& out, const std::string& path, bool checks, bool json);

// Removes the one whose key begins with `which`; each for "all".
Result<void> remove_snapshots(Output& out, const std::string& path, const std::string& which,
                              bool json);

}  // namespace weightmap::cli::snapshot
