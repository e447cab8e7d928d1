// Bytes of a checkpoint that may be written to.
#pragma once

#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member functions of Checkpoint of the same names answer.
Result<std::span<std::byte>> writable_bytes(Checkpoint::State& state, const TensorView& view);
Result<std::span<std::byte>> copy_on_write(Checkpoint::State& state);

}  // namespace weightmap
