// The files that a start used, and whether they are still the same.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tools/run/opened_files.hpp"
#include "tools/run/process_tree.hpp"
#include "tools/snapshot/manifest.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

struct UsedPaths {
  std::set<std::string> mapped;  // by a process, at this moment
  std::set<std::string> read;
  std::set<start::FileNumber> written;  // or open for writing: output, which may change
};

// Returns what processes have mapped and open.
UsedPaths paths_in_use(const start::ProcessTree& processes);

// Returns the state of these files but for output. For Python's bytecode that is the state of its
// source, which Python compares and does not open. Fails with io, naming the file, if a mapped one
// is gone, or if one that was read has changed after `began_ns`: the processes may have the old
// content.
Result<std::vector<UsedFile>> states_of(const UsedPaths& paths, std::int64_t began_ns);

// Returns a sentence about the first file that is another one by now; empty if there is none.
std::string first_change(const std::vector<UsedFile>& files);

}  // namespace weightmap::cli::snapshot
