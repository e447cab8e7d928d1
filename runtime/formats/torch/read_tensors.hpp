// Builds a table of the tensors in a value tree: their nodes, names and storages.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "runtime/formats/torch/tree_walk.hpp"
#include "weightmap/result.hpp"

namespace weightmap::torch {

// Fails with unsafe_pickle if the pickle changes a tensor after making it, with corrupt if a
// tensor's description contradicts itself, with limit_exceeded. `memory` must outlive the result.
// Marks in the tree below `first_mark` are ignored.
Result<TensorTable> read_tensors(const value::Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark = 0);

}  // namespace weightmap::torch
