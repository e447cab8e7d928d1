// Selects tensors by patterns, in the order of the patterns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct TensorSelection {
  std::vector<std::string> patterns;  // weightmap/name_pattern.hpp: '*.wq.weight'
  std::vector<std::size_t> also;      // positions in Checkpoint::tensors(), after the patterns
  std::vector<std::string> except;    // excludes names that match one of these
};

// Returns positions in Checkpoint::tensors(): pattern after pattern, each tensor once; every tensor
// if the selection is empty. Fails with not_found if a pattern matches no tensor.
Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection);

}  // namespace weightmap::cli
