// Reads files of a plan into the page cache, in its order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/run/start_plan.hpp"

namespace weightmap::cli::start {

struct ReadCounts {
  std::size_t files_read = 0;
  std::size_t files_changed = 0;  // since the plan was made; such a file is left out
  std::size_t files_missing = 0;  // or not readable, or no regular file
  std::uint64_t bytes = 0;
  bool was_cached = false;  // a sample was, so nothing else was looked at
  bool ran_out_of_memory = false;
};

// Looks at up to 64 files, spread over the plan: true if all are in the page cache, but for a tenth
// that are missing or other ones by now. Reads nothing; false where the file system cannot tell.
bool seems_cached(const StartPlan& plan);

// Reads the plan with a few threads, each with one piece of a file under way, so that a read of the
// command never waits behind many. Ends early if `stopped` becomes true, or if free memory is
// short.
ReadCounts read_start(const StartPlan& plan, const std::atomic<bool>& stopped);

}  // namespace weightmap::cli::start
