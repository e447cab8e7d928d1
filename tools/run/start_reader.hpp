// The files of a plan in the page cache: read in their order, counted, evicted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/run/start_plan.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

struct ReadCounts {
  std::size_t files_read = 0;
  std::size_t files_changed = 0;  // since the plan was made; such a file is left out
  std::size_t files_missing = 0;  // or not readable, or no regular file
  std::uint64_t bytes = 0;
  bool was_cached = false;  // a sample was, so nothing else was looked at
  bool ran_out_of_memory = false;
};

// Reads the plan with a few threads, each with one piece of a file under way, so that a read of the
// command never waits behind many. Ends early if `stopped` becomes true, or if free memory is
// short.
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
