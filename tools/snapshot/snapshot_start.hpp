// A start with a snapshot: the command is restored from one where there is one that fits, and else
// started, and dumped once it is ready.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/run/start_task.hpp"
#include "tools/snapshot/manifest.hpp"

namespace weightmap::cli::snapshot {

// Runs the command to its end and returns its exit status; ends by the signal that ended it, if one
// did. Returns nullopt, after a line on standard error, where snapshots cannot be made at all: then
// nothing was started. `folder` is made if it is not there. To be called while this process has one
// thread.
std::optional<int> run_with_snapshot(const start::StartOptions& options,
                                     const std::filesystem::path& folder,
                                     const start::StartCommand& what);

// Returns which of machine and files is another one than when the snapshot was made; empty if all
// are the same. The image itself is not read.
std::string change_since(const Manifest& manifest);

}  // namespace weightmap::cli::snapshot
