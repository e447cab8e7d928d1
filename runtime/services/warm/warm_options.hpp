// Checks the options of a warm-up against each other, and chooses defaults.
#pragma once

#include <cstdint>

#include "runtime/system/memory/lock_share.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

// Fails with invalid_argument, naming the option, for values out of range and options that exclude
// one another; with unsupported for options that do not work with this checkpoint.
Result<void> check_options(const WarmOptions& options, const CheckpointInfo& info);

// Sets the budget and its reason in the report. `most` is what the warm-up can use; with `lock` the
// share is promised so much of it as fits, until finish().
void choose_budget(const WarmOptions& options, std::uint64_t most, os::LockShare& share,
                   WarmReport& report);

}  // namespace weightmap
