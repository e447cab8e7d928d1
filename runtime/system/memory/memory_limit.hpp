// Computes how much more memory this process may use before evictions or kills.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace weightmap::os {

struct MemoryLimit {
  static constexpr std::uint64_t unknown = ~std::uint64_t{0};
  std::uint64_t available = unknown;  // bytes, including page cache that can be dropped
  std::string reason;                 // "MemAvailable", "memory.max of /user.slice"; empty: unknown
  std::uint64_t there = 0;  // bytes of what is to be in memory that are, and count as used

  // Leaves a reserve for page tables and concurrent allocations.
  std::uint64_t usable() const noexcept {
    return available == unknown ? unknown : available - available / 16 + there;
  }
};

// Returns the minimum of MemAvailable and the remainder of each memory cgroup above this process
// (version 2 or 1). `root` contains proc and sys/fs/cgroup; tests have one of their own.
MemoryLimit memory_limit(const std::filesystem::path& root = "/");

// Returns how much of the last ten seconds some process of the machine, or of a cgroup (version 2)
// above this one, could not go on because memory had to be found for it, in percent (PSI,
// Linux 4.20); 0 if the system does not tell.
double memory_waiting(const std::filesystem::path& root = "/");

}  // namespace weightmap::os
