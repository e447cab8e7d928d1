// Handlers of SIGBUS and SIGSEGV, in front of those that were there before.
//
// What they do not repair goes on as if they were not there: to a function with that function's
// mask and flags, to the default action with the same siginfo, which ends the process with a core
// dump. Handlers that were installed later and were then overtaken by ours may pass the signal
// back; it goes on to the next one then.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Called in a signal handler; answer whether the interrupted code can go on.
struct FaultRepair {
  // SIGBUS: a page at this address cannot be had. SIGSEGV: what is mapped at this address does not
  // allow what was done there.
  bool (*at)(std::uintptr_t address) noexcept;
  // Somebody in this process raised the signal: perhaps a handler that passes one on.
  bool (*anywhere)() noexcept;
};

// Puts the handler of SIGBUS or SIGSEGV in front, if it is not. Fails with io if the system
// refuses, with unsupported if something keeps the signal for itself (a sanitizer that was told
// to), with limit_exceeded if others have put theirs in front of it many times. Always called with
// the same `repair` for a signal.
Result<void> install_fault_handler(int signal, const FaultRepair& repair);

// Whether the signal comes to this handler first. False before the first install_fault_handler().
bool fault_handler_is_first(int signal) noexcept;

}  // namespace weightmap::mmap
