// The UNIX sockets of a command that have a name in a file system.
//
// criu gives a restored socket its name again. The folder of the name may be gone by then, since
// programs remove what they have made for themselves at their end, as Python's multiprocessing does
// with /tmp/pymp-NAME.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/run/process_tree.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

struct SocketFolder {
  std::string path;
  std::uint32_t mode = 0, owner = 0, group = 0;

  friend bool operator==(const SocketFolder&, const SocketFolder&) = default;
};

// Returns the absolute names of the processes' sockets, but for those in /dev/shm, which is part of
// an image.
std::vector<std::string> socket_files_of(const start::ProcessTree& processes);

// Returns the folders of these files, and all above, from the top.
std::vector<SocketFolder> folders_of(const std::vector<std::string>& files);

// Makes those that are missing. Fails where another user has made one meanwhile.
Result<void> make_missing(const std::vector<SocketFolder>& folders);

// Returns the first of the files whose socket a process has; empty if there is none.
std::string first_used(const std::vector<std::string>& files);

}  // namespace weightmap::cli::snapshot
