#include "runtime/base/bytes/range_set.hpp"

#include <algorithm>
#include <iterator>

namespace weightmap::bytes {

void RangeSet::add(ByteRange range) {
  if (range.length == 0) return;
  std::uint64_t begin = range.offset;
  std::uint64_t end = range.offset + range.length;
  auto joined = ends_.upper_bound(begin);
  if (joined != ends_.begin() && std::prev(joined)->second >= begin) --joined;
  while (joined != ends_.end() && joined->first <= end) {
    begin = std::min(begin, joined->first);
    end = std::max(end, joined->second);
    joined = ends_.erase(joined);
  }
  ends_.emplace_hint(joined, begin, end);
}

void RangeSet::remove(ByteRange range) {
  if (range.length == 0) return;
  const std::uint64_t end = range.offset + range.length;
  auto cut = ends_.lower_bound(range.offset);
  if (cut != ends_.begin() && std::prev(cut)->second > range.offset) --cut;
  while (cut != ends_.end() && cut->first < end) {
    const auto [first, last] = *cut;
    cut = ends_.erase(cut);
    if (first < range.offset) ends_.emplace(first, range.offset);
    if (last > end) ends_.emplace(end, last);
  }
}

bool RangeSet::intersects(ByteRange range) const noexcept {
  const auto behind = ends_.lower_bound(range.offset + range.length);
  return range.length != 0 && behind != ends_.begin() && std::prev(behind)->second > range.offset;
}

std::vector<ByteRange> RangeSet::missing(ByteRange range) const {
  std::vector<ByteRange> parts;
  std::uint64_t at = range.offset;
  const std::uint64_t end = range.offset + range.length;
  auto known = ends_.upper_bound(at);
  if (known != ends_.begin()) at = std::max(at, std::prev(known)->second);
  for (; at < end; ++known) {
    const std::uint64_t until = known == ends_.end() ? end : std::min(end, known->first);
    if (until > at) parts.push_back({at, until - at});
    if (until == end) break;
    at = known->second;
  }
  return parts;
}

std::vector<ByteRange> RangeSet::ranges() const {
  std::vector<ByteRange> all;
  for (const auto& [begin, end] : ends_) all.push_back({begin, end - begin});
  return all;
}

std::uint64_t RangeSet::end_of_first() const noexcept {
  return ends_.empty() || ends_.begin()->first != 0 ? 0 : ends_.begin()->second;
}

}  // namespace weightmap::bytes
