#include "runtime/checkpoint/demand_log.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace weightmap {
namespace {

// Returns the tensors that have bytes, sorted by their first byte.
std::vector<std::uint32_t> by_offset(const TensorTable& placed) {
  std::vector<std::uint32_t> tensors;
  const auto count = static_cast<std::uint32_t>(placed.listed().size());
  tensors.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i)
    if (const catalog::Entry* const entry = placed.known(i); entry != nullptr && entry->extent != 0)
      tensors.push_back(i);
  std::sort(tensors.begin(), tensors.end(), [&placed](std::uint32_t a, std::uint32_t b) {
    return placed.known(a)->position < placed.known(b)->position;
  });
  return tensors;
}

}  // namespace

// Walks from one start or end of a tensor to the next; `open` has those that began and may not have
// ended yet, the first tensor on top.
std::vector<DemandLog::Segment> DemandLog::segments_of(const TensorTable& placed) {
  const std::vector<std::uint32_t> tensors = by_offset(placed);
  const auto start = [&placed](std::uint32_t i) { return placed.known(i)->position; };
  const auto end = [&](std::uint32_t i) { return start(i) + placed.known(i)->extent; };
  std::vector<Segment> segments;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> open;
  std::uint64_t at = 0;
  auto next = tensors.begin();
  while (!open.empty() || next != tensors.end()) {
    if (open.empty()) at = start(*next);
    for (; next != tensors.end() && start(*next) == at; ++next) open.push(*next);
    while (!open.empty() && end(open.top()) <= at) open.pop();
    if (open.empty()) continue;
    std::uint64_t until = end(open.top());
    if (next != tensors.end()) until = std::min(until, start(*next));
    segments.push_back({at, until, open.top()});
    at = until;
  }
  return segments;
}

void DemandLog::note(std::uint64_t position, const TensorTable& placed) {
  const bool is_full = notes_.with([position](Notes& notes) {
    notes.waiting.push_back(position);
    return notes.waiting.size() >= most_waiting;
  });
  if (is_full) resolve(placed);
}

std::vector<std::size_t> DemandLog::order(const TensorTable& placed) {
  if (notes_.with([](Notes& notes) { return !notes.waiting.empty(); })) resolve(placed);
  return notes_.with([](Notes& notes) { return notes.order; });
}

void DemandLog::resolve(const TensorTable& placed) {
  notes_.with([&placed](Notes& notes) {
    notes.resolve(placed);
    notes.waiting.clear();
  });
}

void DemandLog::Notes::resolve(const TensorTable& placed) {
  if (segments.empty() || placed.is_late()) {
    segments = segments_of(placed);
    seen.resize(placed.listed().size());
  }
  for (std::uint64_t offset : waiting) add(offset);
}

void DemandLog::Notes::add(std::uint64_t position) {
  auto after = std::upper_bound(
      segments.begin(), segments.end(), position,
      [](std::uint64_t offset, const Segment& segment) { return offset < segment.start; });
  if (after == segments.begin()) return;
  const Segment& segment = *--after;
  if (position >= segment.end || seen[segment.tensor]) return;
  seen[segment.tensor] = true;
  order.push_back(segment.tensor);
}

}  // namespace weightmap
