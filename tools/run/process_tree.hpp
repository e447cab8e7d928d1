// A process and its descendants but for this process, seen from outside through /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tools/support/descriptor.hpp"

namespace weightmap::cli::start {

// Sums over the tree, those of children that were waited for included where the system keeps them.
struct ProcessCounts {
  std::uint64_t major_faults = 0;  // a page had to come from the disk
  std::uint64_t minor_faults = 0;
  std::uint64_t read_bytes = 0;     // from the disk
  std::uint64_t called_bytes = 0;   // by calls as read(), wherever they came from
  double user_seconds = 0;          // of processors
  double system_seconds = 0;        // of processors
  std::optional<double> disk_wait;  // seconds; nullopt where delay accounting is off
  // Memory of those that run now; pages that several share count for each.
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t file_bytes = 0;
};

// Returns the size of a process's address space; 0 if it has ended.
std::uint64_t mapped_bytes_of(pid_t process);

// Returns what a process has read from the disk, and children of it that were waited for.
std::uint64_t disk_bytes_of(pid_t process);

class ProcessTree {
 public:
  explicit ProcessTree(pid_t root);

  pid_t root() const noexcept { return root_; }
  // Waits so long, or until the root has ended; returns whether it has.
  bool wait_for_end(int milliseconds) const noexcept;
  // Looks for new descendants. One that is orphaned before it was seen is missed.
  void update();
  const std::set<pid_t>& members() const noexcept { return members_; }
  // Finds a process that began after the last update(), too.
  bool contains(pid_t process);
  ProcessCounts counts() const;

 private:
  pid_t root_;
  Descriptor handle_;  // a pidfd; none before Linux 5.3
  std::set<pid_t> members_;
  std::set<pid_t> strangers_;  // until an update() that finds them gone
};

}  // namespace weightmap::cli::start
