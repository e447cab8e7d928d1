// The handler of SIGBUS, in front of those that were there before.
//
// What it does not repair goes on as if it were not there: to a function with that function's mask
// and flags, to the default action with the same siginfo, which ends the process with a core dump.
// Handlers that were installed later and were then overtaken by ours may pass the signal back; it
// goes on to the next one then.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Both are called in a signal handler and answer whether the interrupted code can go on.
struct BusRepair {
  // A page at this address cannot be had.
  bool (*at)(std::uintptr_t address) noexcept;
  // Somebody in this process raised SIGBUS: perhaps a handler that passes one on.
  bool (*anywhere)() noexcept;
};

// Puts the handler in front, if it is not. Fails with io if the system refuses, with unsupported if
// something keeps SIGBUS for itself (a sanitizer that was told to), with limit_exceeded if others
// have put theirs in front of it many times. Always called with the same `repair`.
Result<void> install_bus_handler(const BusRepair& repair);

// Whether SIGBUS comes to this handler first. False before the first install_bus_handler().
bool bus_handler_is_first() noexcept;

}  // namespace weightmap::os
