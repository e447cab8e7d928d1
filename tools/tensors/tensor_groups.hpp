// Groups tensors by the beginnings of their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/inspect.hpp"

namespace weightmap::cli {

struct TensorGroup {
  std::string name;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;  // in the file
  std::uint64_t cached_bytes = 0;
};

// Groups by the first `depth` parts of the names, which dots separate; 0 separates all tensors.
struct Grouping {
  std::size_t depth = 0;
  // Returns the greatest depth with at most 40 groups of on average two tensors each; at least 1.
  static Grouping by_size(const Checkpoint& checkpoint, const std::vector<std::size_t>& indices);
};

// Returns the groups in the order of their first tensors among `indices`. Tied tensors, which are
// the same elements, count once, in the first group that has one of them.
std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint,
                                       const std::vector<std::size_t>& indices, Grouping grouping);
// Does the same with cached_bytes. Here a group has all bytes of its tensors, so that tied tensors
// count once in each of their groups; `elements` is not set.
std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint,
                                       const std::vector<std::size_t>& indices, Grouping grouping,
                                       const ResidencyReport& report);

}  // namespace weightmap::cli
