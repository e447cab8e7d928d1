#include "runtime/services/warm/slice_ranges.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/strided_blocks.hpp"

namespace weightmap {
namespace {

// Returns the same elements with the dimensions sorted by stride, so that blocks come by position.
// `dims` receives the view's shape and strides.
TensorView by_position(const TensorView& view, std::vector<std::int64_t>& dims) {
  std::vector<std::size_t> order(view.rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&view](std::size_t a, std::size_t b) {
    return view.strides()[a] > view.strides()[b];
  });
  for (const std::size_t dim : order) dims.push_back(view.shape()[dim]);
  for (const std::size_t dim : order) dims.push_back(view.strides()[dim]);
  const std::span<const std::byte> bytes = view.stored_bytes();
  return {view.dtype(), view.rank(), dims.data(), bytes.data(), bytes.size(), view.flags()};
}

// Precondition: the slice is not empty.
Result<void> add_ranges(const Checkpoint::State& state, const TensorView& slice,
                        std::vector<ByteRange>& ranges) {
  if (is_blocked(slice.dtype())) {
    TRY_ASSIGN(const TensorSlice bytes, slice.bits());
    return add_ranges(state, bytes, ranges);
  }
  const std::optional<std::uint64_t> position = state.position_of(slice.stored_bytes());
  if (!position)
    return failure(ErrorCode::invalid_argument, "a slice is not one of this checkpoint");
  const std::uint64_t extent = slice.stored_bytes().size();
  std::vector<std::int64_t> dims;
  StridedBlocks blocks(by_position(slice, dims));
  // Only overlapping dimensions have more blocks than that.
  if (blocks.count() > 2 * (extent / StridedBlocks::most_gap) + 2) {
    ranges.push_back({*position, extent});
    return {};
  }
  for (; !blocks.done(); blocks.advance())
    ranges.push_back({*position + blocks.offset(), blocks.bytes()});
  return {};
}

}  // namespace

Result<std::vector<ByteRange>> ranges_of(const Checkpoint::State& state,
                                         std::span<const TensorSlice> slices) {
  std::vector<ByteRange> ranges;
  for (const TensorSlice& slice : slices)
    if (slice.numel() != 0) TRY(add_ranges(state, slice, ranges));
  return ranges;
}

}  // namespace weightmap
