// Boxes of a tensor: which elements a chunk has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "weightmap/result.hpp"

namespace weightmap::dcp {

// From `offsets` on, as many elements along each dimension as `sizes` says.
struct BoxRef {
  std::span<const std::int64_t> offsets;
  std::span<const std::int64_t> sizes;

  bool is_empty() const noexcept;
};

// "[3, 0]", for errors; of many numbers the first.
std::string to_text(std::span<const std::int64_t> values);

// What may be compared for all tensors of a checkpoint: a second or two of work.
struct Comparisons {
  std::uint64_t left = std::uint64_t{1} << 30;  // of numbers
};

// Proves that the boxes lie in a tensor of these sizes, that no two of them overlap, and that they
// have all of its elements. Fails with corrupt, with limit_exceeded where so many boxes lie side by
// side that more would have to be compared than is left of `comparisons`. No number is negative;
// each box has the tensor's rank.
Result<void> check_boxes(std::span<const std::int64_t> sizes, std::span<const BoxRef> boxes,
                         Comparisons& comparisons);

}  // namespace weightmap::dcp
