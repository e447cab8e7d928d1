// From a value tree to pickle bytes: the other way of parse.hpp.
//
// Protocol 2, opcode for opcode as CPython's C pickler writes it (and so torch.save): the same memo
// ids, batches and widths of integers. What a parsed pickle of that kind says comes out as it went
// in.
//
// A node that is reached twice is written once and fetched ever after. Nodes are told apart by
// identity, of whichever tree they are, and globals by their names; so whoever builds a tree uses
// one cell where Python would have one object. Kinds that protocol 2 has no opcode for are written
// as CPython 3 does: a set is a call of __builtin__.set. Names of globals are written as they are,
// so they are those of protocol 2 (__builtin__, copy_reg).
//
// Linear in the size of the tree, in time and in memory; no recursion.
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
  // Asked for each object once, and for a persistent id each time, before anything of it is
  // written: what is to be written in its place, or nullopt for the value itself. It is not asked
  // about its answer, but about the objects and persistent ids within that. Trees of the answers
  // must live until write() returns.
  std::function<std::optional<Value>(const Value& value)> replace{};
  std::uint64_t max_bytes = 0xFFFFFFFF;  // more cannot be read by parse()
};

// Fails with invalid_argument (a value that holds itself, a string or the name of a global that is
// not UTF-8, a name with a line break) and limit_exceeded (a longer pickle, or a larger integer,
// than can be written).
Result<std::vector<std::byte>> write(const Value& root, const WriteOptions& options = {});

}  // namespace weightmap::pickle
