// What is mounted in the namespace of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weightmap::cli::start {

struct Mount {
  std::uint64_t id = 0;
  std::string device;  // "8:1", of the file system
  std::string place;   // the path it is mounted at
  std::string type;    // "ext4"

  friend bool operator==(const Mount&, const Mount&) = default;
};

// Parses /proc/PID/mountinfo (proc(5)). Lines that are none are left out.
std::vector<Mount> parse_mounts(std::string_view text);

// Those with files that someone has written; the kernel makes up those of /proc and its like.
// Empty for a process that has ended.
std::vector<Mount> mounts_with_files(pid_t process);

}  // namespace weightmap::cli::start
