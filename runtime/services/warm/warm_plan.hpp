// Plans the ranges to prefetch and their order, by pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {

struct WarmPlan {
  std::vector<ByteRange> steps;  // without common pages
  std::uint64_t bytes = 0;       // of all steps
  std::uint64_t bytes_left_out = 0;
};

struct WarmPlanLimits {
  std::uint64_t step_bytes;    // at least os::large_page
  std::uint64_t budget_bytes;  // the plan's bytes stay within it
  std::uint64_t page_bytes;    // of the system
  bool exact = false;          // only pages that ranges touch
};

// Returns the pages of `ranges` in their order, each once: large ranges are rounded out to huge
// pages, small ones (os::small_range) to pages, neighbours are joined across small gaps, and the
// result is cut into steps. With `exact` all are treated as small ones, and joined only without a
// gap. Steps begin with a page, and end with one or with a source. `sources` are the files in the
// address space of positions: by offset, each beginning with a huge page. Each range lies in one of
// them, and so does each step.
WarmPlan plan_warm_up(std::span<const ByteRange> ranges, std::span<const ByteRange> sources,
                      const WarmPlanLimits& limits);

}  // namespace weightmap
