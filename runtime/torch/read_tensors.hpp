// From the value tree to tensors: which nodes are tensors, how they are called, which storage they
// view. Unknown globals are opaque nodes that are looked into, so that a training checkpoint or a
// whole pickled module still lists its tensors.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "runtime/torch/tensor_table.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

struct ReadLimits {
  std::uint64_t file_offset;  // of the pickle, for error messages
  Limits limits;
};

// Fails with unsafe_pickle if the pickle names a global that only attacks need, with corrupt if a
// tensor's description contradicts itself, with limit_exceeded.
// `memory` must outlive the result.
Result<TensorTable> read_tensors(const value::Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory);

}  // namespace weightmap::torch
