// The page faults of this process. The system counts them per process and thread, not per mapping.
#pragma once

#include <cstdint>

namespace weightmap::mmap {

struct ProcessFaults {
  std::uint64_t minor = 0;  // found their page in memory
  std::uint64_t major = 0;  // waited for the disk
  std::uint32_t forks = 0;  // fork_count() of the counted process
};

// Counts those of all threads since the beginning of the process.
ProcessFaults process_faults() noexcept;

// Counts those after `start`; in a process that was forked since, all of its own.
ProcessFaults faults_since(const ProcessFaults& start) noexcept;

// Counts those of this thread that waited for the disk.
std::uint64_t thread_major_faults() noexcept;

}  // namespace weightmap::mmap
