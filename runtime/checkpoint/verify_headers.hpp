#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Reads the metadata of the files afresh and compares the place of every storage with what stands
// before it in its file.
Result<void> verify_headers(const Checkpoint::State& state);

}  // namespace weightmap
