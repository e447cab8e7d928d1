// Memory as a busy machine has it.
#pragma once

#include <cstdint>

namespace weightmap::cli::bench {

// Touches and frees memory for a file of this size, and as much more as a process needs, but not
// more than half of what is free. A virtual machine may give pages that have been free for a while
// back to its host; touching one again then costs many times more, now to one engine, now to
// another.
void recycle_memory(std::uint64_t file_bytes);

}  // namespace weightmap::cli::bench
