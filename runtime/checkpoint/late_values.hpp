// The values of a checkpoint that are read when they are asked for.
#pragma once

#include <span>
#include <string>

#include "runtime/checkpoint/state.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

// See Checkpoint::values() and left_out_values(). Threads that ask at once each read them, and all
// get what the first one has read.
Result<Value> values_of(Checkpoint::State& state);
std::span<const std::string> left_out_of(const Checkpoint::State& state) noexcept;

}  // namespace weightmap
