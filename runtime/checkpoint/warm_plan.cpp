#include "runtime/checkpoint/warm_plan.hpp"

#include <algorithm>

namespace weightmap {
namespace {

constexpr std::uint64_t page = 4096;

class Planner {
 public:
  Planner(std::uint64_t file_bytes, const WarmPlanLimits& limits)
      : file_bytes_(file_bytes), limits_(limits), taken_((file_bytes + page - 1) / page) {}

  void add(const ByteRange& range) {
    if (range.length == 0) return;
    const std::uint64_t unit = range.length < small_range ? page : large_page;
    const std::uint64_t first = range.offset / unit * unit;
    const std::uint64_t last = (range.offset + range.length - 1) / unit * unit;
    const std::uint64_t end = std::min(last + unit, file_bytes_);
    add_pages(first / page, (end + page - 1) / page);
  }

  WarmPlan finish() && { return std::move(plan_); }

 private:
  // The pages from `first` to before `end` that no step has yet.
  void add_pages(std::uint64_t first, std::uint64_t end) {
    while (first < end) {
      while (first < end && taken_[first]) ++first;
      std::uint64_t run = first;
      while (run < end && !taken_[run]) taken_[run++] = true;
      if (first < run) add_run(first * page, std::min(run * page, file_bytes_));
      first = run;
    }
  }

  void add_run(std::uint64_t offset, std::uint64_t end) {
    offset = join(offset, end);
    while (offset < end) {
      // Steps end where large pages do, whatever they begin with.
      const std::uint64_t border = (offset / large_page) * large_page + limits_.step_bytes;
      const std::uint64_t stop = std::min(end, border);
      if (!spend(stop - offset)) return leave_out(end - offset);
      plan_.steps.push_back({offset, stop - offset});
      offset = stop;
    }
  }

  // Lengthens the last step up to `end`, as far as it may be long, if only a small gap is between;
  // answers where the next one begins.
  std::uint64_t join(std::uint64_t offset, std::uint64_t end) {
    if (plan_.steps.empty()) return offset;
    ByteRange& last = plan_.steps.back();
    const std::uint64_t last_end = last.offset + last.length;
    if (offset < last_end || offset - last_end >= small_range) return offset;
    const std::uint64_t border = (last.offset / large_page) * large_page + limits_.step_bytes;
    const std::uint64_t stop = std::min(end, border);
    const auto gap = taken_.begin() + static_cast<std::ptrdiff_t>(last_end / page);
    const auto gap_end = taken_.begin() + static_cast<std::ptrdiff_t>(offset / page);
    if (stop <= offset || std::find(gap, gap_end, true) != gap_end || !spend(stop - last_end))
      return offset;
    std::fill(gap, gap_end, true);
    last.length = stop - last.offset;
    return stop;
  }

  bool spend(std::uint64_t bytes) {
    if (bytes > limits_.budget_bytes - plan_.bytes) return false;
    plan_.bytes += bytes;
    return true;
  }
  void leave_out(std::uint64_t bytes) { plan_.bytes_left_out += bytes; }

  std::uint64_t file_bytes_;
  WarmPlanLimits limits_;
  std::vector<bool> taken_;  // by page
  WarmPlan plan_;
};

}  // namespace

WarmPlan plan_warm_up(std::span<const ByteRange> ranges, std::uint64_t file_bytes,
                      const WarmPlanLimits& limits) {
  Planner planner(file_bytes, limits);
  for (const ByteRange& range : ranges) planner.add(range);
  return std::move(planner).finish();
}

}  // namespace weightmap
