// Memory as a busy machine has it.
#pragma once

#include <cstdint>

namespace weightmap::cli::bench {

// What a process takes besides the file that it reads, in bytes: generously.
inline constexpr std::uint64_t process_memory = std::uint64_t{512} << 20;

// Touches and frees so many bytes of memory, but not more than half of what is free. A virtual
// machine may give pages that have been free for a while back to its host; touching one again then
// costs many times more, now to one engine, now to another.
void recycle_memory(std::uint64_t bytes);

}  // namespace weightmap::cli::bench
