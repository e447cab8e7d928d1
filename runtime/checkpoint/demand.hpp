// Tensors that somebody waits for.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member function of Checkpoint of the same name does.
Result<void> demand(Checkpoint::State& state, const TensorView& view);

}  // namespace weightmap
