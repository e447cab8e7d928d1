// From pickle bytes to a value tree.
//
// Understands protocols 0 to 5. GLOBAL, REDUCE, NEWOBJ, INST, BUILD, persistent ids and the like
// become nodes; nothing is looked up, imported or called. Opcodes that refer to what is not in the
// pickle (EXT*, NEXT_BUFFER, READONLY_BUFFER) are refused by name. docs/format.md has the list.
//
// Linear in the size of the pickle, in time and in memory (ParseLimits::budget_bytes); no
// recursion.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>

#include "runtime/bytes/buffer.hpp"
#include "runtime/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

struct ParseLimits {
  std::uint64_t budget_bytes;  // cells, stack and memo together
  std::uint32_t depth;         // nesting of containers and calls
  // Of a legacy stream: a persistent id ("module", class, file, source) is the class.
  bool has_modules = false;
};

// One of several pickles that lie in one piece of memory. Each has a stack and a memo of its own.
struct NamedPickle {
  std::uint32_t name;  // where its name stands in that memory
  std::uint32_t name_length;
  std::uint32_t begin;
  std::uint32_t end;
};

// Parses `pickle`, which lies in `pickle_memory` (the tree takes it over, since strings point into
// it) and starts at `file_offset` of the file, for error messages. Below 4 GiB. What lies behind
// STOP is ignored. `memory` must outlive the tree.
//
// If there are `parts`, `pickle` consists of these, and the tree is the dict of what each of them
// makes by its name. Nothing may lie between the STOP of a part and its end.
//
// Fails with corrupt (stream ends early, stack underflow, unknown memo id), unsafe_pickle (an
// opcode or a target that only code could answer), unsupported (protocol), limit_exceeded.
Result<std::unique_ptr<value::Tree>> parse(bytes::Buffer pickle_memory,
                                           std::span<const std::byte> pickle,
                                           std::uint64_t file_offset, const ParseLimits& limits,
                                           std::pmr::memory_resource& memory,
                                           std::span<const NamedPickle> parts = {});

}  // namespace weightmap::pickle
