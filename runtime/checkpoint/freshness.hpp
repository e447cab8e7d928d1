// Whether what is mapped is still what was opened.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// What the member functions of Checkpoint of like names answer. No lock is taken.
bool is_current(const Checkpoint::State& state) noexcept;
CheckpointState state_of(const Checkpoint::State& state) noexcept;

}  // namespace weightmap
