// Parses pickle bytes into a value tree.
//
// Supports protocols 0 to 5. GLOBAL, REDUCE, NEWOBJ, INST, BUILD, persistent ids and the like
// become nodes; nothing is looked up, imported or called. Opcodes that refer to data outside the
// pickle (EXT*, NEXT_BUFFER, READONLY_BUFFER) are refused by name. docs/format.md has the list.
//
// Time and memory are linear in the size of the pickle (ParseLimits::budget_bytes). No recursion.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/value/tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::pickle {

struct ParseLimits {
  std::uint64_t budget_bytes;  // cells, stack and memo together
  std::uint32_t depth;         // nesting of containers and calls
  // Set for a legacy stream: a persistent id ("module", class, file, source) becomes the class.
  bool has_modules = false;
  // Set for a file that is a pickle: joblib's arrays have their elements behind them in the stream.
  bool has_raw_arrays = false;
};

// One of several pickles in one block of memory. Each has a stack and a memo of its own.
struct NamedPickle {
  std::uint32_t name;  // position of its name in that memory
  std::uint32_t name_length;
  std::uint32_t begin;
  std::uint32_t end;
};

// Parses `pickle`, which lies in `pickle_memory` and starts at `file_offset` of the file, for error
// messages. The tree takes the memory over, since its strings point into it. The pickle must be
// below 4 GiB. Bytes behind STOP are ignored. `memory` must outlive the tree.
//
// If there are `parts`, `pickle` consists of them, and the tree is the dict {name of part: its
// value}. Nothing may lie between the STOP of a part and its end.
//
// Fails with corrupt (the stream ends early, the stack underflows, a memo id is unknown),
// unsafe_pickle (a target that only code could resolve), unsupported (protocol), limit_exceeded.
Result<std::unique_ptr<value::Tree>> parse(bytes::Buffer pickle_memory,
                                           std::span<const std::byte> pickle,
                                           std::uint64_t file_offset, const ParseLimits& limits,
                                           std::pmr::memory_resource& memory,
                                           std::span<const NamedPickle> parts = {});

// True for the class of which joblib pickles an object in front of an array's elements;
// scikit-learn had a joblib of its own.
bool is_joblib_array(std::string_view module, std::string_view name) noexcept;

// Returns "a tuple", "an object".
[[gnu::cold]] std::string with_article(Value::Kind kind);

}  // namespace weightmap::pickle
