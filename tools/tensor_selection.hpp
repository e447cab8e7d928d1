// From patterns that a person typed to tensors, in the order they were named.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct TensorSelection {
  std::vector<std::string> patterns;  // as the shell has them: '*.wq.weight'; none: every tensor
  std::vector<std::string> except;    // leaves out what matches one of these
};

// Positions in Checkpoint::tensors(): pattern after pattern, each tensor once. Fails with
// invalid_argument if a pattern matches no tensor.
Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection);

// The lines of a text file that are neither empty nor begin with '#'.
Result<std::vector<std::string>> read_patterns(const std::string& path);

}  // namespace weightmap::cli
