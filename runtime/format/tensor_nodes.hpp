// Which tensor of the catalog a node of the value tree is.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "runtime/value/tree.hpp"

namespace weightmap::format {

// Filled in by a format's parser, in one of two ways; then only read, by any thread.
struct TensorNodes {
  explicit TensorNodes(std::pmr::memory_resource& memory) : nodes(&memory) {}

  // By value::position_of() of the node; the first of several tensors that are one node. nullopt if
  // there is none.
  std::optional<std::uint32_t> find(std::uint32_t position) const noexcept;

  // Tensors as they stand in the tree: key, node, key, node ... So nothing is kept of each. Nodes
  // ascend in position from each to the next.
  struct Run {
    const value::Cell* items;
    std::uint32_t count;  // of nodes
    std::uint32_t path;   // for whoever makes the catalog
    std::uint32_t first_tensor;
  };
  std::vector<Run> runs;
  // Of runs that do not stand so in the tree. By pointer, since to move a deque may need memory.
  std::unique_ptr<std::deque<std::array<value::Cell, 2>>> single_items;

  // Any tensors, ascending by position.
  struct Node {
    std::uint32_t position;
    std::uint32_t tensor;
  };
  std::pmr::vector<Node> nodes;
  // Puts them in this order; tensors that are one node stay in theirs.
  void sort();
};

}  // namespace weightmap::format
