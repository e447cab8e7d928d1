// Which files a process has mapped and open at this moment, from /proc. Where /proc may not be read
// there are none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weightmap::cli::start {

// A line of /proc/PID/maps about a file that a plan may have.
struct MappedPart {
  std::uint64_t begin, end, offset;
  std::string path;
};

std::vector<MappedPart> mapped_parts(pid_t process);

// Only those that a plan may have.
std::vector<std::string> open_files(pid_t process);

}  // namespace weightmap::cli::start
