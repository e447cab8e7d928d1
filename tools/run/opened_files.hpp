// Which files processes open, and which they have written to, as the system tells it (fanotify, for
// who has CAP_SYS_ADMIN).
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/system/file/mount.hpp"
#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// What is mounted in the namespace of a process, but for /proc and its like, whose files the kernel
// makes up. Empty for a process that has ended.
std::vector<os::Mount> mounts_with_files(pid_t process);

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
  bool is_regular = false;
  bool is_of_namespace = false;  // done through a mount of the namespace that is watched
  FileNumber number;
};

class OpenedFiles {
 public:
  // Watches the file systems of these paths from now on.
  explicit OpenedFiles(const std::vector<std::string>& paths);
  // Watches all mounts of the namespace of a process, which are its own.
  static OpenedFiles of_namespace(pid_t process);

  // False if the system refuses.
  bool is_watching() const noexcept { return watch_.get() >= 0; }
  // Calls `note` with what happened since the last call, in order.
  void take(const std::function<void(const FileEvent&)>& note);
  // Returns a sentence about the first thing that keeps the system from telling of all files that
  // these processes have opened; empty if nothing does. Of what of_namespace() watches.
  std::string unseen(const std::set<pid_t>& processes) const;

 private:
  OpenedFiles();
  // False if the system refuses.
  bool watch(const std::string& path);

  Descriptor watch_;
  std::set<std::uint64_t> mounts_;  // of the namespace
  std::set<std::string> devices_;   // of these
  std::string trouble_;             // the first one
};

}  // namespace weightmap::cli::start
