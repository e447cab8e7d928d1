// Handlers of SIGBUS and SIGSEGV, in front of earlier ones.
//
// A signal that they do not repair takes its previous course: to a handler function with its own
// mask and flags, or to the default action with the same siginfo, which ends the process with a
// core dump. Handlers that were installed later, and that ours overtook again, may pass the signal
// back; it then goes to the next one.
#pragma once

#include <cstdint>

#include "weightmap/result.hpp"

namespace weightmap::mmap {

// Called in a signal handler; return whether the interrupted code can continue.
struct FaultRepair {
  // SIGBUS: a page at this address cannot be read. SIGSEGV: the mapping there denies the access.
  bool (*at)(std::uintptr_t address) noexcept;
  // The signal was raised within this process, perhaps by a handler that passes one on.
  bool (*anywhere)() noexcept;
};

// Puts the handler of SIGBUS or SIGSEGV in front. Fails with io if the system refuses, with
// unsupported if another component reserves the signal (such as a sanitizer), with limit_exceeded
// if other handlers overtook it many times. Always called with the same `repair` for a signal.
Result<void> install_fault_handler(int signal, const FaultRepair& repair);

// True if this handler receives the signal first. False before the first install_fault_handler().
bool fault_handler_is_first(int signal) noexcept;

}  // namespace weightmap::mmap
