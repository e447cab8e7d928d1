#include "runtime/services/warm/warm_plan.hpp"

#include <algorithm>

#include "mmap/page_loader.hpp"
#include "runtime/services/warm/page_set.hpp"

namespace weightmap {
namespace {

std::uint64_t end_of(const ByteRange& range) noexcept { return range.offset + range.length; }

class Planner {
 public:
  Planner(std::span<const ByteRange> sources, const WarmPlanLimits& limits)
      : sources_(sources),
        limits_(limits),
        page_(limits.page_bytes),
        taken_((end_of(sources.back()) + page_ - 1) / page_) {
    limits_.step_bytes -= limits_.step_bytes % page_;  // each page is in one step
  }

  void add(const ByteRange& range) {
    if (range.length == 0) return;
    const bool is_small = limits_.exact || range.length < mmap::small_range;
    const std::uint64_t unit = is_small ? page_ : os::large_page;
    const std::uint64_t first = range.offset / unit * unit;
    const std::uint64_t last = (range.offset + range.length - 1) / unit * unit;
    source_ = *(std::upper_bound(sources_.begin(), sources_.end(), range.offset,
                                 [](std::uint64_t offset, const ByteRange& source) {
                                   return offset < source.offset;
                                 }) -
                1);
    const std::uint64_t end = std::min(last + unit, end_of(source_));
    add_pages(first / page_, (end + page_ - 1) / page_);
  }

  WarmPlan finish() && { return std::move(plan_); }

 private:
  // Adds the pages from `first` up to `end` that are in no step yet.
  void add_pages(std::uint64_t first, std::uint64_t end) {
    while ((first = taken_.find_out(first, end)) < end) {
      const std::uint64_t run_end = taken_.find_in(first, end);
      taken_.add(first, run_end);
      add_run(first * page_, std::min(run_end * page_, end_of(source_)));
      first = run_end;
    }
  }

  void add_run(std::uint64_t offset, std::uint64_t end) {
    offset = join(offset, end);
    while (offset < end) {
      // Steps end at borders of huge pages, wherever they begin.
      const std::uint64_t border = (offset / os::large_page) * os::large_page + limits_.step_bytes;
      const std::uint64_t stop = std::min(end, border);
      if (!spend(stop - offset)) return leave_out(end - offset);
      plan_.steps.push_back({offset, stop - offset});
      offset = stop;
    }
  }

  // Extends the last step up to `end`, within the maximum length, if the gap before `offset` is
  // small; returns the beginning of the next step.
  std::uint64_t join(std::uint64_t offset, std::uint64_t end) {
    if (plan_.steps.empty()) return offset;
    ByteRange& last = plan_.steps.back();
    const std::uint64_t last_end = last.offset + last.length;
    const std::uint64_t most_gap = limits_.exact ? 0 : mmap::small_range - 1;
    if (last.offset < source_.offset || offset < last_end || offset - last_end > most_gap)
      return offset;
    const std::uint64_t border =
        (last.offset / os::large_page) * os::large_page + limits_.step_bytes;
    const std::uint64_t stop = std::min(end, border);
    const std::uint64_t gap = last_end / page_;
    const std::uint64_t gap_end = offset / page_;
    if (stop <= offset || taken_.find_in(gap, gap_end) != gap_end || !spend(stop - last_end))
      return offset;
    taken_.add(gap, gap_end);
    last.length = stop - last.offset;
    return stop;
  }

  bool spend(std::uint64_t bytes) {
    if (bytes > limits_.budget_bytes - plan_.bytes) return false;
    plan_.bytes += bytes;
    return true;
  }
  void leave_out(std::uint64_t bytes) { plan_.bytes_left_out += bytes; }

  std::span<const ByteRange> sources_;
  ByteRange source_{};  // of the current range
  WarmPlanLimits limits_;
  std::uint64_t page_;
  PageSet taken_;
  WarmPlan plan_;
};

}  // namespace

WarmPlan plan_warm_up(std::span<const ByteRange> ranges, std::span<const ByteRange> sources,
                      const WarmPlanLimits& limits) {
  Planner planner(sources, limits);
  for (const ByteRange& range : ranges) planner.add(range);
  return std::move(planner).finish();
}

}  // namespace weightmap
