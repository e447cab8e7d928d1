// How much more memory this process may fill before something is thrown out or killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace weightmap::os {

struct MemoryLimit {
  static constexpr std::uint64_t unknown = ~std::uint64_t{0};
  std::uint64_t available = unknown;  // bytes; page cache that could be dropped counts as available
  std::string reason;                 // "MemAvailable", "memory.max of /user.slice"; empty: unknown

  // Less a part that is left alone: for page tables, and those who allocate meanwhile.
  std::uint64_t usable() const noexcept {
    return available == unknown ? unknown : available - available / 16;
  }
};

// The least of MemAvailable and of what each memory cgroup above this process (version 2 or 1) has
// left. `root` is where proc and sys/fs/cgroup are looked for; tests have one of their own.
MemoryLimit memory_limit(const std::filesystem::path& root = "/");

}  // namespace weightmap::os
