#include "runtime/services/warm/warm_window.hpp"

#include <algorithm>
#include <numeric>

namespace weightmap {
namespace {

std::vector<std::size_t> numbers(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// Returns for each step the last range in it.
std::vector<std::size_t> last_ranges(const std::vector<ByteRange>& steps,
                                     std::span<const ByteRange> ranges) {
  std::vector<std::size_t> by_offset = numbers(steps.size());
  std::sort(by_offset.begin(), by_offset.end(),
            [&](std::size_t a, std::size_t b) { return steps[a].offset < steps[b].offset; });
  std::vector<std::size_t> last(steps.size(), 0);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::uint64_t end = ranges[i].offset + ranges[i].length;
    const auto ends_before = [&](std::size_t step, std::uint64_t offset) {
      return steps[step].offset + steps[step].length <= offset;
    };
    auto step = std::lower_bound(by_offset.begin(), by_offset.end(), ranges[i].offset, ends_before);
    for (; step != by_offset.end() && steps[*step].offset < end; ++step) last[*step] = i;
  }
  return last;
}

}  // namespace

WarmWindow::WarmWindow(const WarmPlan& plan, std::span<const ByteRange> ranges, std::uint64_t bytes)
    : plan_(plan),
      bytes_(bytes),
      by_last_range_(numbers(plan.steps.size())),
      last_range_(last_ranges(plan.steps, ranges)),
      states_(plan.steps.size(), State::ahead) {
  std::stable_sort(
      by_last_range_.begin(), by_last_range_.end(),
      [this](std::size_t a, std::size_t b) { return last_range_[a] < last_range_[b]; });
}

bool WarmWindow::wait_for_turn(std::size_t step) {
  const std::uint64_t length = plan_.steps[step].length;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stopped_ || states_[step] == State::passed || held_ == 0 ||
           (held_ <= bytes_ && length <= bytes_ - held_);
  });
  if (stopped_ || states_[step] == State::passed) return false;
  states_[step] = State::begun;
  held_ += length;
  return true;
}

bool WarmWindow::loaded(std::size_t step) {
  const std::lock_guard lock(mutex_);
  if (states_[step] == State::passed) return true;
  states_[step] = State::loaded;
  return false;
}

std::vector<std::size_t> WarmWindow::pass(std::size_t count) {
  std::vector<std::size_t> behind;
  const std::lock_guard lock(mutex_);
  for (; next_passed_ < by_last_range_.size(); ++next_passed_) {
    const std::size_t step = by_last_range_[next_passed_];
    if (last_range_[step] >= count) break;
    if (states_[step] != State::ahead) held_ -= plan_.steps[step].length;
    if (states_[step] != State::begun) behind.push_back(step);
    states_[step] = State::passed;
  }
  changed_.notify_all();
  return behind;
}

void WarmWindow::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace weightmap
