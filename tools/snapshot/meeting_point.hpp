// Files by which a command and the supervisor beside it meet: the one says "this is the moment"
// (weightmap.snapshot_here), the other answers which process it is now.
// python/weightmap/_snapshot.py is the other side.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// The variable with the folder's path.
inline constexpr const char* meeting_variable = "WEIGHTMAP_SNAPSHOT";

// Returns the file that is there once the command asks for a snapshot, as processes outside of the
// supervisor's namespace see it.
std::filesystem::path call_in(const std::filesystem::path& folder, pid_t supervisor);

// What a command has called with: the names of the variables that it reads afterwards, and for
// which each restored process has its own. Fails with corrupt for what no call has written.
Result<std::vector<std::string>> new_variables_of(const std::filesystem::path& call);

// Tells the process that was started, and asks, that it is the original one.
Result<void> answer_original(const std::filesystem::path& folder);

// Tells a process that will be restored, and asks, so, with the environment of this start.
Result<void> answer_restored(const std::filesystem::path& folder, const char* const* environment);

}  // namespace weightmap::cli::snapshot
