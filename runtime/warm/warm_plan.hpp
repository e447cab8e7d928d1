// Which ranges of a file to bring in, in which order: pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weightmap {

struct ByteRange {
  std::uint64_t offset;
  std::uint64_t length;
  friend bool operator==(const ByteRange&, const ByteRange&) noexcept = default;
};

struct WarmPlan {
  std::vector<ByteRange> steps;  // no page in two of them
  std::uint64_t bytes = 0;       // of all steps
  std::uint64_t bytes_left_out = 0;
};

struct WarmPlanLimits {
  std::uint64_t step_bytes;    // at least large_page
  std::uint64_t budget_bytes;  // the plan's bytes stay within it
};

// What the page cache holds as one piece where it can.
inline constexpr std::uint64_t large_page = std::uint64_t{2} << 20;
// Ranges below this are brought in by exact reads: a large page would cost more than it brings.
inline constexpr std::uint64_t small_range = std::uint64_t{256} << 10;

// The pages of `ranges` in their order, each once: large ranges rounded out to large pages, small
// ones to pages, neighbours joined across gaps of less than `small_range`, and cut into steps.
// Ranges must lie in the file.
WarmPlan plan_warm_up(std::span<const ByteRange> ranges, std::uint64_t file_bytes,
                      const WarmPlanLimits& limits);

}  // namespace weightmap
