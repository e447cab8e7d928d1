// Where the bytes of slices lie in the files of a checkpoint.
#pragma once

#include <span>
#include <vector>

#include "runtime/bytes/byte_range.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Positions of what the slices reach, in their order, those of each by position; rows that lie
// within 16 KiB of one another with what is between, as gather() reads them. Never more ranges than
// the bytes that are reached have room for, whatever the strides. Fails with invalid_argument for a
// slice of another checkpoint.
Result<std::vector<ByteRange>> ranges_of(const Checkpoint::State& state,
                                         std::span<const TensorSlice> slices);

}  // namespace weightmap
