// Counts the system calls of a sample from outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cold/process.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct TracedRun {
  Finished finished;
  std::uint64_t system_calls = 0;  // of all threads, between begin_mark and end_mark
};

// Runs a sample with ptrace, which slows every system call, so its times are meaningless. Fails if
// the system refuses ptrace, or Linux is older than 5.3.
Result<TracedRun> count_system_calls(const std::vector<std::string>& command);

}  // namespace weightmap::cli::bench
