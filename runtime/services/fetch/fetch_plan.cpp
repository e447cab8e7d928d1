#include "runtime/services/fetch/fetch_plan.hpp"

#include <algorithm>
#include <iterator>

namespace weightmap {
namespace {

constexpr std::uint64_t largest_page = 64 * 1024;

// Calls add() for each part of a range between two multiples of `unit`.
template <class Add>
void cut(ByteRange range, std::uint64_t unit, Add add) {
  while (range.length != 0) {
    const std::uint64_t length = std::min(range.length, unit - range.offset % unit);
    add(ByteRange{range.offset, length});
    range = {range.offset + length, range.length - length};
  }
}

// What is to be taken of a piece that is longer; it ends with a page, and the piece is the rest.
std::optional<ByteRange> take_front(ByteRange& piece, std::uint64_t longest) {
  if (piece.length <= longest) return std::nullopt;
  const std::uint64_t end = (piece.offset + longest) / largest_page * largest_page;
  if (end <= piece.offset) return std::nullopt;
  const ByteRange front{piece.offset, end - piece.offset};
  piece = {end, piece.length - front.length};
  return front;
}

}  // namespace

FetchPlan::FetchPlan(std::uint64_t size, const bytes::RangeSet& present, std::uint64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes) {
  for (const ByteRange gap : present.missing({0, size}))
    cut(gap, chunk_bytes_, [this](ByteRange piece) { pieces_.push_back(piece); });
  taken_.resize(pieces_.size());
  left_ = pieces_.size();
}

void FetchPlan::put_first(ByteRange range) {
  const auto ends_before = [](const ByteRange& piece, std::uint64_t offset) {
    return piece.offset + piece.length <= offset;
  };
  const std::uint64_t end = range.offset + range.length;
  auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), range.offset, ends_before);
  std::vector<std::size_t> first;
  for (; piece != pieces_.end() && piece->offset < end; ++piece) {
    const auto number = static_cast<std::size_t>(piece - pieces_.begin());
    if (!taken_[number]) first.push_back(number);
  }
  urgent_.insert(urgent_.begin(), first.begin(), first.end());
}

void FetchPlan::add_again(ByteRange range) {
  cut(range, chunk_bytes_, [this](ByteRange piece) { again_.push_back(piece); });
}

std::optional<ByteRange> FetchPlan::next(std::uint64_t longest) {
  if (!again_.empty()) {
    if (const auto front = take_front(again_.front(), longest)) return front;
    const ByteRange piece = again_.front();
    again_.pop_front();
    return piece;
  }
  while (!urgent_.empty() && taken_[urgent_.front()]) urgent_.pop_front();
  while (next_ < pieces_.size() && taken_[next_]) ++next_;
  if (left_ == 0) return std::nullopt;
  const std::size_t number = urgent_.empty() ? next_ : urgent_.front();
  if (const auto front = take_front(pieces_[number], longest)) return front;
  if (!urgent_.empty()) urgent_.pop_front();
  taken_[number] = true;
  --left_;
  return pieces_[number];
}

std::vector<ByteRange> FetchPlan::upcoming(std::size_t count) const {
  std::vector<ByteRange> coming(
      again_.begin(),
      std::next(again_.begin(), static_cast<std::ptrdiff_t>(std::min(count, again_.size()))));
  for (auto at = urgent_.begin(); at != urgent_.end() && coming.size() < count; ++at)
    if (!taken_[*at]) coming.push_back(pieces_[*at]);
  for (std::size_t at = next_; at < pieces_.size() && coming.size() < count; ++at)
    if (!taken_[at]) coming.push_back(pieces_[at]);
  return coming;
}

}  // namespace weightmap
