#include "runtime/formats/format/tensor_nodes.hpp"

#include <algorithm>

namespace weightmap::format {

void TensorNodes::sort() {
  const auto earlier = [](const Node& a, const Node& b) { return a.position < b.position; };
  // They are in this order unless a container is reached again or filled late.
  if (!std::is_sorted(nodes_.begin(), nodes_.end(), earlier))
    std::stable_sort(nodes_.begin(), nodes_.end(), earlier);
}

std::optional<std::uint32_t> TensorNodes::find(std::uint32_t position) const noexcept {
  const auto node =
      std::lower_bound(nodes_.begin(), nodes_.end(), position,
                       [](const Node& at, std::uint32_t wanted) { return at.position < wanted; });
  if (node == nodes_.end() || node->position != position) return std::nullopt;
  return node->tensor;
}

}  // namespace weightmap::format
