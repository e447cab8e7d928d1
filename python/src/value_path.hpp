// From keys to the place in the value tree where they lead.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {

struct FoundValue {
  Value value;
  std::vector<PathPart> path;  // borrows from the tree
};

// Keys of dicts, indices of lists and tuples, and keys of the items and the state of an object, as
// they stand in the names of tensors: joined by dots. nullopt if they lead nowhere, or if that
// cannot be told with bounded work.
std::optional<FoundValue> find_value(const Value& root, std::string_view name);
// The same by path.
std::optional<Value> find_value(const Value& root, std::span<const PathPart> path);

// What Python would call it: "int", "dict", "argparse.Namespace".
std::string type_name_of(const Value& value);

// A tuple of str and int.
nanobind::tuple to_python(std::span<const PathPart> path);

}  // namespace weightmap::python
