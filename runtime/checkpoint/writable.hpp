// Bytes of a checkpoint for writers, and for libraries that cannot express read-only memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Implement the member functions of Checkpoint of the same names.
Result<std::span<std::byte>> writable_bytes(Checkpoint::State& state, const TensorView& view);
Result<std::span<std::byte>> copy_on_write(Checkpoint::State& state);
Result<std::span<std::byte>> lend(Checkpoint::State& state, std::uint64_t storage_bytes,
                                  std::optional<CopyOnWrite> how);

}  // namespace weightmap
