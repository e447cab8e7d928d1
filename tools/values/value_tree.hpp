// Prints a value tree of a checkpoint, line by line or as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {

struct NamedValue {
  std::string name;  // the keys from the root to it, joined by dots
  Value value;
};

struct TreeLimits {
  std::optional<std::size_t> depth;  // levels below the first
  bool all = false;                  // shows all of very many children, not only the first
};

// Counts numpy's arrays among the values that are no tensors: text, objects, big-endian numbers.
std::size_t count_arrays(const Checkpoint& checkpoint);

// Prints "name: " and the value on one line, or its head and a line for each part, indented by two
// spaces per level; tensors by type, shape and size. A container that is reached again is named,
// not repeated, so that the work stays proportional to the file.
void print_tree(Output& out, const Checkpoint& checkpoint, const NamedValue& from,
                const TreeLimits& limits);

// The tensors that are no part of the values, as a header lists them or the files of a set have
// them: all of them, or those whose name is `path` or begins with its keys.
std::vector<std::string_view> tensors_apart(const Checkpoint& checkpoint, const std::string& path);

// Prints how many they are and a line for each, as print_tree() does.
void print_tensors(Output& out, const Checkpoint& checkpoint,
                   const std::vector<std::string_view>& names, const TreeLimits& limits);

Json describe_tensors(const Checkpoint& checkpoint, const std::vector<std::string_view>& names);

// Returns numbers, strings, lists and dicts with string keys as JSON's; everything else as an
// object whose only or first key begins with "$" (docs/cli.md). Fails with limit_exceeded if the
// text is too large for a document.
Result<Json> describe(const Checkpoint& checkpoint, const NamedValue& from);

}  // namespace weightmap::cli
