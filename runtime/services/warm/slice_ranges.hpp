// Finds the bytes of slices in the files of a checkpoint.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Returns the positions that the slices cover, in their order, and within a slice by position; rows
// within 16 KiB of one another are one range with the gap between them, as gather() reads them. The
// number of ranges is bounded by the covered bytes, whatever the strides. Fails with
// invalid_argument for a slice of another checkpoint.
Result<std::vector<ByteRange>> ranges_of(const Checkpoint::State& state,
                                         std::span<const TensorSlice> slices);

}  // namespace weightmap
