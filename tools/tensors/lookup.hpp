// From what a person typed to a tensor or another value, or to what they may have meant.
#pragma once

#include <string>

#include "tools/values/value_tree.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

struct FoundTensor {
  std::string name;  // as asked for
  TensorView view;
};

// `name` is a tensor's name, or a path as JSON ('["optimizer", "state", 0, "exp_avg"]'), which also
// reaches tensors that share a name. Failing that, the error lists up to three near names.
Result<FoundTensor> look_up(const Checkpoint& checkpoint, const std::string& name);

// The same for any value: epochs, settings, dicts.
Result<NamedValue> look_up_value(const Checkpoint& checkpoint, const std::string& name);

}  // namespace weightmap::cli
