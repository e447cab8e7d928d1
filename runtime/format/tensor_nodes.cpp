#include "runtime/format/tensor_nodes.hpp"

#include <algorithm>

namespace weightmap::format {
namespace {

std::uint32_t position_in(const TensorNodes::Run& run, std::uint32_t index) noexcept {
  return *value::position_of(run.items[2 * std::size_t{index} + 1]);
}

std::optional<std::uint32_t> find_in(const TensorNodes::Run& run, std::uint32_t position) noexcept {
  std::uint32_t low = 0;
  for (std::uint32_t count = run.count; count > 1;) {
    const std::uint32_t half = count / 2;
    if (position_in(run, low + half) <= position) low += half;
    count -= half;
  }
  if (position_in(run, low) != position) return std::nullopt;
  return run.first_tensor + low;
}

}  // namespace

std::optional<std::uint32_t> TensorNodes::find(std::uint32_t position) const noexcept {
  const auto behind = std::upper_bound(
      runs.begin(), runs.end(), position,
      [](std::uint32_t wanted, const Run& run) { return wanted < position_in(run, 0); });
  if (behind != runs.begin()) return find_in(*(behind - 1), position);
  const auto node =
      std::lower_bound(nodes.begin(), nodes.end(), position,
                       [](const Node& at, std::uint32_t wanted) { return at.position < wanted; });
  if (node == nodes.end() || node->position != position) return std::nullopt;
  return node->tensor;
}

void TensorNodes::sort() {
  const auto earlier = [](const Node& a, const Node& b) { return a.position < b.position; };
  // They come in this order but where a container is reached again, or is filled late.
  if (!std::is_sorted(nodes.begin(), nodes.end(), earlier))
    std::stable_sort(nodes.begin(), nodes.end(), earlier);
}

}  // namespace weightmap::format
