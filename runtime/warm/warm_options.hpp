// Checks the options of a warm-up against each other, and chooses defaults.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

// Fails with invalid_argument, naming the option, for values out of range and options that exclude
// one another; with unsupported for options that do not work with this checkpoint.
Result<void> check_options(const WarmOptions& options, const CheckpointInfo& info);

// Sets the budget and its reason in the report. `locked` is the number of bytes that are locked in
// memory already and not part of the free memory.
void choose_budget(const WarmOptions& options, std::uint64_t locked, WarmReport& report);

}  // namespace weightmap
