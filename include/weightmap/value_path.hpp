// From keys to the place in a value tree where they lead.
//
//   const auto epoch = weightmap::find_value(checkpoint->root(), "epoch");
//   if (epoch && epoch->value.integer()) resume(*epoch->value.integer());
//
// A key is one of a dict, an index of a list or tuple, or a key of the items or of the state of an
// object, as in the names and paths of tensors. What is found borrows from the tree. All functions
// may be called from any thread.
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

// By a name: keys joined by dots, "optimizer.param_groups.0.lr". A key may have dots itself. Of two
// values with one name the last, as in Python. nullopt if the keys lead nowhere, or if that cannot
// be told with bounded work.
WEIGHTMAP_API std::optional<FoundValue> find_value(const Value& root, std::string_view name);
// By path.
WEIGHTMAP_API std::optional<Value> find_value(const Value& root, std::span<const PathPart> path);

// The name of what lies at this path: its parts joined by dots.
WEIGHTMAP_API std::string name_of(std::span<const PathPart> path);

// Calls `visit` for each value that a key leads to from `parent`, in the order of the file. What
// has another key, such as a tuple, is left out.
WEIGHTMAP_API void for_each_child(const Value& parent,
                                  const std::function<void(const PathPart&, const Value&)>& visit);

// What Python would call its type: "int", "dict", "argparse.Namespace".
WEIGHTMAP_API std::string type_name_of(const Value& value);

}  // namespace weightmap
