// Which globals a pickle names, without a tree: of pickles that parse() refuses, too, and at little
// cost.
//
// Follows every opcode of protocols 0 to 5 as Python's unpickler does, but only texts are kept, for
// STACK_GLOBAL, which takes its two names from the stack. Nothing is looked up or called. Linear in
// the size of the pickle; memory: eight bytes for each value on the stack or in the memo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "weightmap/result.hpp"

namespace weightmap::pickle {

struct ScannedGlobal {
  // Into the pickle; both empty where only running it would tell, as for an extension code.
  std::string_view module;
  std::string_view name;
  std::uint64_t position;  // of the opcode in the pickle
};

struct Scan {
  std::uint64_t length = 0;    // up to and including STOP, or to the opcode that is at fault
  std::optional<Error> fault;  // Python would stop here, or the limits do
  bool ends_early = false;     // the fault is that more bytes would be needed
};

// Calls `found` for each global in the order of the opcodes, also for those before a fault.
// `file_offset` is that of the pickle, for error messages. Below 4 GiB.
Scan scan_globals(std::span<const std::byte> pickle, std::uint64_t file_offset,
                  std::uint64_t budget_bytes,
                  const std::function<void(const ScannedGlobal&)>& found);

}  // namespace weightmap::pickle
