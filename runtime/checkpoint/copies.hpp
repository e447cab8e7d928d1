// Copies of tensors that fail instead of faulting.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member functions of Checkpoint of the same names do.
Result<void> gather(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);
Result<void> copy_bytes(Checkpoint::State& state, const TensorView& view, std::span<std::byte> out);

// For whoever has read the bytes of the mapping itself: fails as these do if what was read may not
// be what was opened.
Result<void> check_unchanged(Checkpoint::State& state, const TensorView& view);

// How an error about bytes of the mapping begins: `tensor "norm.weight": `, of the first tensor
// that has the first of them; empty if none has.
std::string start_of_error(Checkpoint::State& state, std::span<const std::byte> part);

}  // namespace weightmap
