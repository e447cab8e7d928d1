// Tensors put together by the beginning of their names, with what of them is cached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weightmap/residency.hpp"

namespace weightmap::cli {

struct ResidencyGroup {
  std::string name;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  // in the file; tensors that are the same bytes count once
  std::uint64_t cached_bytes = 0;
};

// By the first `depth` parts of their names, which dots separate, in the order in which the groups
// first appear among `indices`. A depth of 0 leaves each tensor by itself.
std::vector<ResidencyGroup> group_tensors(const Checkpoint& checkpoint,
                                          const ResidencyReport& report,
                                          const std::vector<std::size_t>& indices,
                                          std::size_t depth);

}  // namespace weightmap::cli
