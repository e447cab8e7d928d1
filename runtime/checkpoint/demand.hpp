// Reads tensors that a thread needs at once.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Implements the member function of Checkpoint of the same name.
Result<void> demand(Checkpoint::State& state, const TensorView& view);

}  // namespace weightmap
