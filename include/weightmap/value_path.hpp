// Finds values in a value tree by their keys.
//
//   const auto epoch = weightmap::find_value(checkpoint->root(), "epoch");
//   if (epoch && epoch->value.integer()) resume(*epoch->value.integer());
//
// A key is one of a dict, an index of a list or tuple, or a key of an object's items or state, as
// in paths of tensors. What a pickled torch.nn.Module has in `_parameters`, `_buffers` and
// `_modules` is under the module itself as well, where its state_dict() names it. Results borrow
// from the tree. All functions may be called from any thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

struct FoundValue {
  Value value;
  std::vector<PathPart> path;  // borrows from the tree
};

// Finds a value by name: keys joined by dots, "optimizer.param_groups.0.lr". A key itself may
// contain dots. The last of two values with one name wins, as in Python. nullopt if there is no
// such value, or if a bounded search cannot tell.
WEIGHTMAP_API std::optional<FoundValue> find_value(const Value& root, std::string_view name);
// Finds a value by path.
WEIGHTMAP_API std::optional<Value> find_value(const Value& root, std::span<const PathPart> path);

// Returns the name for a path: its parts joined by dots.
WEIGHTMAP_API std::string name_of(std::span<const PathPart> path);

// Calls `visit` for each value under a key of `parent`, in file order. Values with other keys, such
// as tuples, are skipped.
WEIGHTMAP_API void for_each_child(const Value& parent,
                                  const std::function<void(const PathPart&, const Value&)>& visit);

// Returns the name of its type in Python: "int", "dict", "argparse.Namespace".
WEIGHTMAP_API std::string type_name_of(const Value& value);

}  // namespace weightmap
