// Lists the globals that a pickle names, without a tree: at little cost, and also for pickles that
// parse() refuses.
//
// The scan follows every opcode of protocols 0 to 5 as Python's unpickler does, but keeps only
// texts, since STACK_GLOBAL takes its two names from the stack. Nothing is looked up or called.
// Time is linear in the size of the pickle; memory is eight bytes per value on the stack or in the
// memo.
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
  // Point into the pickle. Both are empty if only a running Python knows them (extension codes).
  std::string_view module;
  std::string_view name;
  std::uint64_t position;  // of the opcode in the pickle
};

struct Scan {
  std::uint64_t length = 0;    // up to and including STOP, or up to the faulty opcode
  std::optional<Error> fault;  // the reason why Python or the limits would stop here
  bool ends_early = false;     // the fault is a truncated pickle
  std::uint64_t needs = 0;     // then: it has at least so many bytes
  bool has_calls = false;      // a call of what a name stands for, or of its __setstate__()
};

// Calls `found` for each global in the order of the opcodes, including those before a fault.
// `file_offset` is the pickle's, for error messages. The pickle must be below 4 GiB.
Scan scan_globals(std::span<const std::byte> pickle, std::uint64_t file_offset,
                  std::uint64_t budget_bytes,
                  const std::function<void(const ScannedGlobal&)>& found);

}  // namespace weightmap::pickle
