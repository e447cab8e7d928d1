// From patterns that a person typed to tensors, in the order they were named.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct TensorSelection {
  std::vector<std::string> patterns;  // weightmap/name_pattern.hpp: '*.wq.weight'
  std::vector<std::size_t> also;      // positions in Checkpoint::tensors(), after the patterns
  std::vector<std::string> except;    // leaves out what matches one of these
};

// Positions in Checkpoint::tensors(): pattern after pattern, each tensor once; every tensor if the
// selection names none. Fails with not_found if a pattern matches no tensor.
Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection);

}  // namespace weightmap::cli
