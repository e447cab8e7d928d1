#include "runtime/checkpoint/demand_log.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace weightmap {
namespace {

using catalog::Catalog;

// Returns the tensors that have bytes, sorted by their first byte.
std::vector<std::uint32_t> by_offset(const Catalog& catalog) {
  std::vector<std::uint32_t> tensors;
  tensors.reserve(catalog.size());
  for (std::uint32_t i = 0; i < catalog.size(); ++i)
    if (catalog[i].extent != 0) tensors.push_back(i);
  std::sort(tensors.begin(), tensors.end(), [&catalog](std::uint32_t a, std::uint32_t b) {
    return catalog[a].position < catalog[b].position;
  });
  return tensors;
}

}  // namespace

// Walks from one start or end of a tensor to the next; `open` has those that began and may not have
// ended yet, the first tensor on top.
std::vector<DemandLog::Segment> DemandLog::segments_of(const Catalog& catalog) {
  const std::vector<std::uint32_t> tensors = by_offset(catalog);
  const auto start = [&catalog](std::uint32_t i) { return catalog[i].position; };
  const auto end = [&catalog](std::uint32_t i) { return catalog[i].position + catalog[i].extent; };
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

void DemandLog::note(std::uint64_t position, const Catalog& catalog) {
  const bool is_full = notes_.with([position](Notes& notes) {
    notes.waiting.push_back(position);
    return notes.waiting.size() >= most_waiting;
  });
  if (is_full) resolve(catalog);
}

std::vector<std::size_t> DemandLog::order(const Catalog& catalog) {
  if (notes_.with([](Notes& notes) { return !notes.waiting.empty(); })) resolve(catalog);
  return notes_.with([](Notes& notes) { return notes.order; });
}

void DemandLog::resolve(const Catalog& catalog) {
  notes_.with([&catalog](Notes& notes) {
    notes.resolve(catalog);
    notes.waiting.clear();
  });
}

void DemandLog::Notes::resolve(const Catalog& catalog) {
  if (segments.empty()) {
    segments = segments_of(catalog);
    seen.resize(catalog.size());
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
