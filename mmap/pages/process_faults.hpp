// The page faults of this process. The system counts them for a process, not for a mapping.
#pragma once

#include <cstdint>

namespace weightmap::mmap {

struct ProcessFaults {
  std::uint64_t minor = 0;  // found their page in memory
  std::uint64_t major = 0;  // waited for the disk
  std::uint32_t forks = 0;  // fork_count() of the process whose they are
};

// Those of all threads, from the beginning of the process on.
ProcessFaults process_faults() noexcept;

// Those that came after `start`; in a process that was forked since, all of its own.
ProcessFaults faults_since(const ProcessFaults& start) noexcept;

}  // namespace weightmap::mmap
