// Which files processes open, and which they have written to, as the system tells it (fanotify, for
// who has CAP_SYS_ADMIN).
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// Returns a path on each file system that a start is likely to use, and these.
std::vector<std::string> likely_places(const std::vector<std::string>& others);

class OpenedFiles {
 public:
  // Watches the file systems of these paths from now on.
  explicit OpenedFiles(const std::vector<std::string>& paths);

  // False if the system refuses.
  bool is_watching() const noexcept { return watch_.get() >= 0; }
  enum class Event : bool { opened, written };  // and closed
  // Calls `note` with each file to which this happened since the last call, in order, and who did
  // so. A file that was removed meanwhile ends with " (deleted)".
  void take(const std::function<void(pid_t process, const std::string& path, Event event)>& note);

 private:
  Descriptor watch_;
};

}  // namespace weightmap::cli::start
