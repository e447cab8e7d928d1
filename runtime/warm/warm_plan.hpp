// Which ranges of the files of a checkpoint to bring in, in which order: pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/bytes/byte_range.hpp"
#include "runtime/os/page_size.hpp"

namespace weightmap {

struct WarmPlan {
  std::vector<ByteRange> steps;  // no page in two of them
  std::uint64_t bytes = 0;       // of all steps
  std::uint64_t bytes_left_out = 0;
};

struct WarmPlanLimits {
  std::uint64_t step_bytes;    // at least os::large_page
  std::uint64_t budget_bytes;  // the plan's bytes stay within it
  std::uint64_t page_bytes;    // of the system
  bool exact = false;          // no page but those that ranges touch
};

// The pages of `ranges` in their order, each once: large ranges rounded out to large pages, small
// ones (mmap::small_range) to pages, neighbours joined across gaps that are small, too, and cut
// into steps; with `exact` all are small ones, and joined where there is no gap. Steps begin with a
// page, and end with one or with a source. `sources` are where files lie in the one space that all
// positions are of: by offset, each beginning with a large page. Each range lies in one of them,
// and so does each step.
WarmPlan plan_warm_up(std::span<const ByteRange> ranges, std::span<const ByteRange> sources,
                      const WarmPlanLimits& limits);

}  // namespace weightmap
