// Writes a value tree as pickle bytes, the inverse of parse.hpp.
//
// The output is protocol 2, opcode for opcode as CPython's C pickler (and so torch.save) writes it:
// the same memo ids, batches and widths of integers. A parsed pickle of that kind is reproduced
// byte for byte.
//
// A node that is reached twice is written once and fetched from the memo afterwards. Nodes are
// compared by identity, also across trees, and globals by name; so the author of a tree uses one
// cell where Python would have one object. Kinds without an opcode in protocol 2 are written as
// CPython 3 does: a set is a call of __builtin__.set. Lists, dicts, tuples and objects may hold
// themselves, but not in the callable or the arguments that an object is made by. Names of globals
// are written unchanged, so they must be those of protocol 2 (__builtin__, copy_reg).
//
// Time and memory are linear in the size of the tree. There is no recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::pickle {

struct WriteOptions {
  // Called before each object is first written, and before every persistent id. It returns a value
  // to write instead, or nullopt for the value itself. It is not called for the returned value, but
  // for the objects and persistent ids within that. The trees of returned values must live until
  // write() returns.
  std::function<std::optional<Value>(const Value& value)> replace{};
  std::uint64_t max_bytes = 0xFFFFFFFF;  // parse() can read no more
};

// Fails with invalid_argument (a set or the arguments of a call that contain it, a string or the
// name of a global that is not UTF-8, a name with a line break) and limit_exceeded (a longer
// pickle, or a larger integer, than can be written).
Result<std::vector<std::byte>> write(const Value& root, const WriteOptions& options = {});

}  // namespace weightmap::pickle
