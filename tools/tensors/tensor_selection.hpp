// Finds the tensor or value that a user names, or suggests similar names; selects tensors by
// patterns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/values/value_tree.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct FoundTensor {
  std::string name;  // given by the user
  TensorView view;
};

// `name` is a tensor's name, or a path as JSON ('["optimizer", "state", 0, "exp_avg"]'), which also
// distinguishes tensors of one name. If there is none, the error lists up to three similar names.
Result<FoundTensor> look_up(const Checkpoint& checkpoint, const std::string& name);

// Does the same for any value: epochs, settings, dicts.
Result<NamedValue> look_up_value(const Checkpoint& checkpoint, const std::string& name);

struct TensorSelection {
  std::vector<std::string> patterns;  // match_tensors(): '*.wq.weight'
  std::vector<std::size_t> also;      // positions in Checkpoint::tensors(), after the patterns
  std::vector<std::string> except;    // excludes names that match one of these
};

// Returns positions in Checkpoint::tensors(): pattern after pattern, each tensor once; every tensor
// if the selection is empty. Fails with not_found if a pattern matches no tensor.
Result<std::vector<std::size_t>> select(const Checkpoint& checkpoint,
                                        const TensorSelection& selection);

}  // namespace weightmap::cli
