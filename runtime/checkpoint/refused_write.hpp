// What is said when somebody writes to a tensor that is only read.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"

namespace weightmap {

// Async-signal-safe: writes one line to standard error that names the tensor at `position` of the
// mapping, and its file. The signal that ends the process says neither. `state` is a
// Checkpoint::State whose open is done.
void tell_refused_write(const void* state, std::uint64_t position) noexcept;

// Has that said of writes to the checkpoint's mapping, if it is only read and not guarded anyway.
// Any thread. Where the system refuses, nothing is said.
void tell_refused_writes(Checkpoint::State& state);

}  // namespace weightmap
