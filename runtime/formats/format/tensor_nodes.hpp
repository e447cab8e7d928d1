// Maps nodes of the value tree to tensors of the catalog.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

namespace weightmap::format {

// A format's parser fills it in; then it is read-only, for any thread.
class TensorNodes {
 public:
  struct Node {
    std::uint32_t position;  // see value::position_of()
    std::uint32_t tensor;
  };

  explicit TensorNodes(std::pmr::memory_resource& memory) : nodes_(&memory) {}

  void reserve(std::size_t count) { nodes_.reserve(count); }
  void add(const Node& node) { nodes_.push_back(node); }
  // Called after the last addition. Tensors of one node stay in the order of their addition.
  void sort();

  // Returns the first of the tensors whose node is at this position. nullopt if there is none.
  std::optional<std::uint32_t> find(std::uint32_t position) const noexcept;

 private:
  std::pmr::vector<Node> nodes_;  // ascending by position
};

}  // namespace weightmap::format
