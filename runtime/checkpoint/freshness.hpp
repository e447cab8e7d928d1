// Compares the mapping with what was opened.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Implement the corresponding member functions of Checkpoint. They take no lock.
bool is_current(const Checkpoint::State& state) noexcept;
CheckpointState state_of(const Checkpoint::State& state) noexcept;

}  // namespace weightmap
