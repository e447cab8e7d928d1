// Boxes of a tensor: the elements of a chunk.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::dcp {

// The part that begins at `offsets` and has `sizes` elements along each dimension.
struct BoxRef {
  std::span<const std::int64_t> offsets;
  std::span<const std::int64_t> sizes;

  bool is_empty() const noexcept;
};

// The budget of comparisons for all tensors of a checkpoint: a second or two of work.
struct Comparisons {
  std::uint64_t left = std::uint64_t{1} << 30;  // comparisons of numbers
};

// Proves that the boxes lie in a tensor of these sizes, do not overlap, and cover all of its
// elements. Fails with corrupt; with limit_exceeded if so many boxes lie side by side that
// `comparisons` is used up. Preconditions: no number is negative; each box has the tensor's rank.
Result<void> check_boxes(std::span<const std::int64_t> sizes, std::span<const BoxRef> boxes,
                         Comparisons& comparisons);

}  // namespace weightmap::dcp
