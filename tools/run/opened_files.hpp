// Which files processes open, and which they have written to, as the system tells it (fanotify, for
// who has CAP_SYS_ADMIN).
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// Returns a path on each file system that a start is likely to use, and these.
std::vector<std::string> likely_places(const std::vector<std::string>& others);

// A file by its numbers, which it keeps when it is renamed.
struct FileNumber {
  std::uint64_t device = 0, inode = 0;

  friend auto operator<=>(const FileNumber&, const FileNumber&) = default;
};

struct FileEvent {
  pid_t process = 0;  // which did it
  std::string path;   // a file that was removed meanwhile ends with " (deleted)"
  bool is_opened = false;
  bool is_written = false;  // and closed
  FileNumber number;
};

class OpenedFiles {
 public:
  // Watches the file systems of these paths from now on.
  explicit OpenedFiles(const std::vector<std::string>& paths);

  // False if the system refuses.
  bool is_watching() const noexcept { return watch_.get() >= 0; }
  // Calls `note` with what happened since the last call, in order.
  void take(const std::function<void(const FileEvent&)>& note);

 private:
  Descriptor watch_;
};

}  // namespace weightmap::cli::start
