// The tensors, paths and storages that a pickle describes, before their places are known.
#pragma once

#include <cstdint>
#include <deque>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/storage_table.hpp"
#include "weightmap/dtype.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap::torch {

// One tensor as the pickle describes it. The catalog later proves that it fits its storage.
struct TensorSpec {
  enum Flag : std::uint8_t {
    requires_grad = 1,
    parameter = 2,
    conjugate = 4,
    negative = 8,
    buffer = 16,
    // Of a pickled module: an attribute that is neither parameter nor buffer; a buffer that its
    // state_dict() leaves out. See move_unlisted().
    attribute = 32,
    not_persistent = 64
  };
  static constexpr std::uint32_t is_root = 0xFFFFFFFF;    // the pickle is this tensor alone
  static constexpr std::uint32_t in_pickle = 0x80000000;  // flag bit: above every limit
  const std::int64_t* dims;                               // sizes then strides, 2 * rank values
  std::int64_t storage_offset;                            // elements
  std::uint32_t storage;  // number in the StorageTable, or in_pickle and one in TensorTable::arrays
  std::uint32_t path;     // of the container: index into TensorTable::paths, or is_root
  value::Cell key;        // in the container; see KeyText
  std::uint32_t position;  // of the object in the pickle; see value::position_of
  std::uint16_t location;  // index into TensorTable::locations
  DType dtype;
  std::uint8_t rank;
  std::uint8_t flags;
};

// One visit to a container on the way to tensors. paths[0] is the root, which has no key.
struct PathNode {
  std::uint32_t parent = 0;
  std::uint16_t depth = 0;       // parts of the path up to and including this node
  bool keys_are_unique = false;  // a dict, where two tensors under one key contradict each other
  value::Cell key;
  std::uint64_t prefix_bytes = 0;  // length of the joined name with a dot behind it; 0 for the root
};

// The elements of an array in the pickle.
struct ArrayExtent {
  std::uint64_t position;  // see NumpyArray
  std::uint64_t nbytes;
  std::uint32_t object;                 // where the pickle makes the array
  std::optional<std::uint64_t> copied;  // the position that a copy of them will have
};

struct TensorTable {
  // Reserves space for so many tensors and storages; the table can grow. `memory` must outlive it.
  TensorTable(std::pmr::memory_resource& memory, std::size_t expected_tensors,
              std::size_t expected_storages)
      : tensors(&memory), storages(memory, expected_storages) {
    tensors.reserve(expected_tensors);
  }

  // Counts the names of `count` tensors under one path, whose keys have `key_bytes` in all.
  void count_names(std::uint32_t path, std::uint64_t count, std::uint64_t key_bytes,
                   bool keys_are_integers) noexcept {
    const PathNode& parent = paths[path];
    name_bytes += count * parent.prefix_bytes + key_bytes;
    if (parent.depth > 0 || keys_are_integers) path_parts += count * (parent.depth + 1u);
  }
  void count_dims(const std::int64_t* dims, std::size_t rank) noexcept {
    dim_count += 2 * rank;
    if (dims == last_dims) shared_dims += 2 * rank;
    last_dims = dims;
  }
  // Returns the memory that the tensors so far take here, in the catalog and in its index.
  std::uint64_t bytes() const noexcept {
    constexpr std::uint64_t each = sizeof(TensorSpec) + 64 + 4 * sizeof(std::uint64_t);
    return tensor_count * each + name_bytes + paths.size() * sizeof(PathNode) + decoded_bytes +
           (dim_count - shared_dims) * sizeof(std::int64_t) + path_parts * sizeof(std::uint32_t);
  }

  std::pmr::vector<TensorSpec> tensors;  // in file order
  std::vector<PathNode> paths;
  StorageTable storages;
  std::vector<std::string_view> locations;
  std::deque<std::vector<std::int64_t>> owned_dims;  // of tensors that were not packed
  std::deque<std::string> owned_keys;    // of storages whose key is not in the tree's text
  std::vector<ComposedTensor> composed;  // in file order
  struct ComposedNode {
    std::uint32_t position;  // of the object
    std::uint8_t flags;      // TensorSpec::attribute and not_persistent
  };
  std::vector<ComposedNode> composed_nodes;  // of each
  std::vector<ArrayExtent> arrays;           // elements in the pickle itself
  std::size_t unlisted = 0;                  // tensors at the end that are not listed
  // Sums that the catalog needs before it is built.
  std::uint64_t tensor_count = 0;
  std::uint64_t name_bytes = 0;
  std::uint64_t dim_count = 0;
  std::uint64_t path_parts = 0;
  std::uint64_t shared_dims = 0;  // the part of dim_count that neighbours of one shape share
  const std::int64_t* last_dims = nullptr;
  std::uint64_t decoded_bytes = 0;  // kept for tensors that were not packed
};

// Moves tensors that a pickled module's state_dict() does not have, and what repeats others, behind
// the rest, and forgets composed ones like that: the buffers that are not persistent; and
// attributes that are, or overlap with, a tensor that is listed, such as the `_flat_weights` of a
// torch.nn.LSTM. Sets TensorTable::unlisted.
void move_unlisted(TensorTable& table);

}  // namespace weightmap::torch
