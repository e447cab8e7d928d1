// Which tensor of the catalog a node of the value tree is.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

namespace weightmap::format {

// Filled in by a format's parser; then only read, by any thread.
class TensorNodes {
 public:
  struct Node {
    std::uint32_t position;  // see value::position_of()
    std::uint32_t tensor;
  };

  explicit TensorNodes(std::pmr::memory_resource& memory) : nodes_(&memory) {}

  void reserve(std::size_t count) { nodes_.reserve(count); }
  void add(const Node& node) { nodes_.push_back(node); }
  // After the last one was added. Tensors that are one node stay in the order in which they came.
  void sort();

  // The first of several tensors that are the node at this position. nullopt if there is none.
  std::optional<std::uint32_t> find(std::uint32_t position) const noexcept;

 private:
  std::pmr::vector<Node> nodes_;  // ascending by position
};

}  // namespace weightmap::format
