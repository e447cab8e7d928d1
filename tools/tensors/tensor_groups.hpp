// Tensors put together by the beginning of their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/residency.hpp"

namespace weightmap::cli {

struct TensorGroup {
  std::string name;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;  // in the file
  std::uint64_t cached_bytes = 0;
};

// How tensors are put together: by the first `depth` parts of their names, which dots separate; 0
// leaves each by itself.
struct Grouping {
  std::size_t depth = 0;
  // The deepest that gives at most 40 groups, of two tensors each on average; at least 1.
  static Grouping by_size(const Checkpoint& checkpoint, const std::vector<std::size_t>& indices);
};

// In the order in which the groups first appear among `indices`. Tied tensors, which are the same
// elements, are counted once: in the first group that has one of them.
std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint,
                                       const std::vector<std::size_t>& indices, Grouping grouping);
// The same with cached_bytes. Here a group has all the bytes that its tensors need, so that tied
// tensors count once in each of their groups; `elements` is not filled in.
std::vector<TensorGroup> group_tensors(const Checkpoint& checkpoint,
                                       const std::vector<std::size_t>& indices, Grouping grouping,
                                       const ResidencyReport& report);

}  // namespace weightmap::cli
