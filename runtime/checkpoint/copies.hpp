// Copies tensors with errors instead of signals, and reads those that a thread needs at once.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Implement the member functions of Checkpoint of the same names.
Result<void> gather(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);
Result<void> demand(Checkpoint::State& state, const TensorView& view);

// Fails likewise if bytes read from the mapping may not be those of the opened file.
Result<void> check_unchanged(Checkpoint::State& state, const TensorView& view);

// Returns the beginning of an error about bytes of the mapping: `tensor "norm.weight": `, for the
// first tensor that has the first of them; empty if none has.
std::string start_of_error(Checkpoint::State& state, std::span<const std::byte> part);

}  // namespace weightmap
