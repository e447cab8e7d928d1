#include "runtime/formats/dcp/boxes.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::dcp {
namespace {

std::optional<std::uint64_t> volume_of(std::span<const std::int64_t> sizes) {
  std::uint64_t volume = 1;
  bool fits = true;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    fits = fits && bytes::checked_mul(volume, static_cast<std::uint64_t>(size), &volume);
  }
  return fits ? std::optional(volume) : std::nullopt;
}

bool overlap(const BoxRef& a, const BoxRef& b) noexcept {
  for (std::size_t dim = 0; dim < a.sizes.size(); ++dim)
    if (a.offsets[dim] >= b.offsets[dim] + b.sizes[dim] ||
        b.offsets[dim] >= a.offsets[dim] + a.sizes[dim])
      return false;
  return true;
}

// Returns the dimension with the most beginnings of boxes, so that few are side by side.
std::size_t most_divided_dimension(std::span<const BoxRef> boxes, std::size_t rank) {
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t dim = 0; dim < rank; ++dim) {
    std::vector<std::int64_t> begins;
    for (const BoxRef& box : boxes) begins.push_back(box.offsets[dim]);
    std::ranges::sort(begins);
    const auto distinct =
        static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (distinct > most) {
      most = distinct;
      best = dim;
    }
  }
  return best;
}

Result<void> check_overlap(std::vector<BoxRef> boxes, std::size_t rank, Comparisons& comparisons) {
  if (boxes.size() < 2) return {};
  if (rank == 0) return failure(ErrorCode::corrupt, "has two chunks for its only element");
  const std::size_t dim = most_divided_dimension(boxes, rank);
  std::ranges::sort(boxes, {}, [dim](const BoxRef& box) { return box.offsets[dim]; });
  std::vector<const BoxRef*> open;  // those that a later box may overlap
  for (const BoxRef& box : boxes) {
    std::erase_if(open, [&](const BoxRef* other) {
      return other->offsets[dim] + other->sizes[dim] <= box.offsets[dim];
    });
    const std::uint64_t numbers = open.size() * rank;
    if (numbers > comparisons.left)
      return failure(ErrorCode::limit_exceeded,
                     "has " + std::to_string(boxes.size()) +
                         " chunks, so many of which lie side by side that it is not proven that "
                         "none overlap");
    comparisons.left -= numbers;
    for (const BoxRef* other : open)
      if (overlap(*other, box))
        return failure(ErrorCode::corrupt,
                       "has chunks that overlap, at " + bytes::listed(other->offsets) +
                           " of sizes " + bytes::listed(other->sizes) + " and at " +
                           bytes::listed(box.offsets) + " of sizes " + bytes::listed(box.sizes));
    open.push_back(&box);
  }
  return {};
}

}  // namespace

bool BoxRef::is_empty() const noexcept {
  return std::ranges::find(sizes, std::int64_t{0}) != sizes.end();
}

Result<void> check_boxes(std::span<const std::int64_t> sizes, std::span<const BoxRef> boxes,
                         Comparisons& comparisons) {
  const std::optional<std::uint64_t> volume = volume_of(sizes);
  if (!volume)
    return failure(ErrorCode::corrupt,
                   "has more elements than 64 bits count: " + bytes::listed(sizes));
  std::uint64_t covered = 0;
  std::vector<BoxRef> filled;
  for (const BoxRef& box : boxes) {
    for (std::size_t dim = 0; dim < sizes.size(); ++dim)
      if (!bytes::contains(static_cast<std::uint64_t>(sizes[dim]),
                           static_cast<std::uint64_t>(box.offsets[dim]),
                           static_cast<std::uint64_t>(box.sizes[dim])))
        return failure(ErrorCode::corrupt, "has a chunk at " + bytes::listed(box.offsets) +
                                               " of sizes " + bytes::listed(box.sizes) +
                                               ", which leaves its shape " + bytes::listed(sizes));
    if (box.is_empty()) continue;
    filled.push_back(box);
    covered += *volume_of(box.sizes);  // overlaps are found before this can wrap
  }
  TRY(check_overlap(std::move(filled), sizes.size(), comparisons));
  if (covered == *volume) return {};
  return failure(ErrorCode::corrupt, "has " + std::to_string(*volume) +
                                         " elements, of which only " + std::to_string(covered) +
                                         " are in the chunks");
}

}  // namespace weightmap::dcp
