// The files of a plan in the page cache: read in their order, counted, evicted.
#pragma once

#include <atomic>
#include <cstdint>

#include "tools/run/plan_reading.hpp"
#include "tools/run/start_plan.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Reads the plan (plan_reading.hpp), unless it seems to be cached. Ends early if `stopped` becomes
// true, or if free memory is short.
ReadCounts read_start(const StartPlan& plan, const std::atomic<bool>& stopped);

// Counts the planned bytes that are cached. Fails with io if a file cannot be opened, or if the
// system does not tell.
Result<std::uint64_t> cached_bytes_of(const StartPlan& plan);

// Reads what is planned, whether it is cached or not; what has changed or cannot be read is left
// out.
void fill_cache(const StartPlan& plan);

// Evicts the files. Pages that processes have mapped stay, and those that are not on the disk yet.
void evict(const StartPlan& plan);

}  // namespace weightmap::cli::start
