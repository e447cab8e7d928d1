// The tensors, paths and storages that a pickle describes, before anything of them is located.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "runtime/torch/storage_table.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::torch {

// One tensor as the pickle describes it. That it fits its storage is proven when the
// catalog is made.
struct TensorSpec {
  enum Flag : std::uint8_t { requires_grad = 1, parameter = 2, conjugate = 4, negative = 8 };
  static constexpr std::uint32_t is_root = 0xFFFFFFFF;  // the pickle is this tensor alone
  const std::int64_t* dims;                             // sizes then strides, 2 * rank values
  std::int64_t storage_offset;                          // elements
  std::uint32_t storage;                                // number in the StorageTable
  std::uint32_t path;      // of the container: index into TensorTable::paths, or is_root
  value::Cell key;         // under which the container holds it; see KeyText
  std::uint32_t position;  // of the object in the pickle; see value::position_of
  std::uint16_t location;  // index into TensorTable::locations
  DType dtype;
  std::uint8_t rank;
  std::uint8_t flags;
};

// A container on the way to tensors, each time it is reached. paths[0] is the root, which has no
// key.
struct PathNode {
  std::uint32_t parent = 0;
  std::uint16_t depth = 0;       // parts of the path up to and including this node
  bool keys_are_unique = false;  // a dict: two tensors under one key contradict
  value::Cell key;
  std::uint64_t prefix_bytes = 0;  // of the joined name with a dot behind it; 0 for the root
};

struct TensorTable {
  // Room for `expected` tensors; more may come. `memory` must outlive the table.
  TensorTable(std::pmr::memory_resource& memory, std::size_t expected)
      : tensors(&memory), storages(memory, expected) {
    tensors.reserve(expected);
  }

  std::pmr::vector<TensorSpec> tensors;  // in file order
  std::vector<PathNode> paths;
  StorageTable storages;
  std::vector<std::string_view> locations;
  std::deque<std::vector<std::int64_t>> owned_dims;  // of tensors that were not packed
  // Sums that a catalog needs before it begins.
  std::uint64_t name_bytes = 0;
  std::uint64_t dim_count = 0;
  std::uint64_t path_parts = 0;
};

}  // namespace weightmap::torch
