// Signals as events that a thread waits for, instead of handlers that interrupt it.
#pragma once

#include <chrono>

namespace serving {

// Blocks SIGTERM, SIGINT, SIGHUP and SIGCHLD in this thread, and in the threads and processes that
// it starts from now on.
void block_signals();

// The next of those that came to this process, or 0 if none came in time.
int wait_for_signal(std::chrono::milliseconds timeout);

}  // namespace serving
