// Copies of tensors that fail instead of faulting.
#pragma once

#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member function of Checkpoint of the same name does.
Result<void> copy_to(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);

}  // namespace weightmap
