// Simulates the memory of a busy machine.
#pragma once

#include <cstdint>

namespace weightmap::cli::bench {

// A generous estimate of a process's memory besides its file, in bytes.
inline constexpr std::uint64_t process_memory = std::uint64_t{512} << 20;

// Touches and frees `bytes` of memory, at most half of what is free. A virtual machine may return
// free pages to its host; touching one then costs much more, for a random engine.
void recycle_memory(std::uint64_t bytes);

}  // namespace weightmap::cli::bench
