// Finds the tensor or value that a user names, or suggests similar names.
#pragma once

#include <string>

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

}  // namespace weightmap::cli
