// Reports writes to read-only tensors.
#pragma once

#include <cstdint>

namespace weightmap {

// Async-signal-safe: writes one line to standard error that names the tensor at `position` of the
// mapping, and its file. `state` is a Checkpoint::State whose open is done.
void tell_refused_write(const void* state, std::uint64_t position) noexcept;

}  // namespace weightmap
