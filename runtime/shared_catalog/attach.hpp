// Opens a checkpoint with the catalog of another process.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Takes over the published catalog of the file, or parses the file and publishes what came of it;
// and maps. The state's info says what happened. Fails only where the parse or the mapping does.
Result<void> open_with_shared_catalog(Checkpoint::State& state);
// Takes over the catalog in sealed memory, and maps. See Checkpoint::attach().
Result<void> open_with_sealed_catalog(Checkpoint::State& state, int descriptor);

}  // namespace weightmap
