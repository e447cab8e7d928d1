// Which options of a warm-up go together, and what is chosen where they leave it open.
#pragma once

#include <cstdint>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {

// Fails with invalid_argument, naming the option, for values out of range and options that exclude
// one another; with unsupported for what a checkpoint opened so cannot do.
Result<void> check_options(const WarmOptions& options, const CheckpointInfo& info);

// Into the report: how many bytes may be brought in, and by what that is limited. `locked`: bytes
// that are locked in memory already and in no count of what is free.
void choose_budget(const WarmOptions& options, std::uint64_t locked, WarmReport& report);

}  // namespace weightmap
