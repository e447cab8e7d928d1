// Opening a checkpoint: from a file to a state that serves it.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// The first stage of every open: the file, under the protection that the options ask for. Nothing
// of it is read yet. `options` are complete.
Result<std::unique_ptr<Checkpoint::State>> begin_open(const std::filesystem::path& path,
                                                      const OpenOptions& options);
Result<std::unique_ptr<Checkpoint::State>> begin_open(int descriptor, const OpenOptions& options);

// The stages between: parses the file and maps it; or only maps it, for a state that has a catalog
// of another process.
Result<void> parse_and_map(Checkpoint::State& state);
Result<void> map(Checkpoint::State& state);

// The last stage of every open: checksums, if the options ask for them.
Result<Checkpoint> finish_open(std::unique_ptr<Checkpoint::State> state);

}  // namespace weightmap
