// The pages of a plan's files in the page cache: counted, read, evicted.
#pragma once

#include <cstdint>

#include "tools/run/start_plan.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Counts the planned bytes that are cached. Fails with io if a file cannot be opened, or if the
// system does not tell.
Result<std::uint64_t> cached_bytes_of(const StartPlan& plan);

// Reads what is planned; what cannot be read is left out.
void fill_cache(const StartPlan& plan);

// Evicts the files. Pages that processes have mapped stay, and those that are not on the disk yet.
void evict(const StartPlan& plan);

}  // namespace weightmap::cli::start
