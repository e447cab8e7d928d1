// A value tree of a checkpoint, line by line or as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/support/json_out.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {

struct NamedValue {
  std::string name;  // the keys that lead there from the root, joined by dots
  Value value;
};

struct TreeLimits {
  std::optional<std::size_t> depth;  // levels below the first
  bool all = false;                  // not only the first of very many children
};

// "name: " and the value on one line, or its head and a line for each part, indented by two blanks
// a level; tensors by type, shape and size. A container that is reached again is named, not
// repeated, so that the work stays in proportion to the file.
void print_tree(Output& out, const Checkpoint& checkpoint, const NamedValue& from,
                const TreeLimits& limits);

// Numbers, strings, lists and dicts with string keys as those of JSON; everything else as an object
// whose only or first key begins with "$" (docs/cli.md). Fails with limit_exceeded if that has more
// text than fits a document.
Result<Json> describe(const Checkpoint& checkpoint, const NamedValue& from);

}  // namespace weightmap::cli
