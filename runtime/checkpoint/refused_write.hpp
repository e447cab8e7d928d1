// Reports writes to read-only tensors.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"

namespace weightmap {

// Async-signal-safe: writes one line to standard error that names the tensor at `position` of the
// mapping, and its file. `state` is a Checkpoint::State whose open is done.
void tell_refused_write(const void* state, std::uint64_t position) noexcept;

// Enables that report for the checkpoint's mapping if it is read-only and not guarded. May be
// called from any thread. Does nothing if the system refuses.
void tell_refused_writes(Checkpoint::State& state);

}  // namespace weightmap
