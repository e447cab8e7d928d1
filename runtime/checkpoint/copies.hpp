// Copies of tensors that fail instead of faulting.
#pragma once

#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member functions of Checkpoint of the same names do.
Result<void> gather(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);
Result<void> copy_bytes(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);

}  // namespace weightmap
