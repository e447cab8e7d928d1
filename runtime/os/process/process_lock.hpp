// A lock that one process at a time has, and that ends with the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/os/process/runtime_directory.hpp"
#include "runtime/os/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Held from its making to its destruction. A POSIX record lock on a file of its own in the runtime
// directory: the system takes it back from a process that ends in whatever way, and a forked child
// does not have it. Boost's file_lock is the same call, but opens its file by path, follows links,
// and leaves the descriptor to programs that are executed.
class ProcessLock {
 public:
  // Never waits. nullopt if another process has it, or another thread of this one. Fails with io if
  // the file cannot be made, or is not this user's own. `directory` must outlive the lock.
  static Result<std::optional<ProcessLock>> try_lock(const RuntimeDirectory& directory,
                                                     const std::string& name);

  ProcessLock(ProcessLock&&) noexcept = default;
  ProcessLock& operator=(ProcessLock&&) = delete;
  // Removes the file and gives the lock up; in a forked child it does neither.
  ~ProcessLock();

  // Tells those who wait for the lock that its process is at work: see last_sign_of_life().
  void give_sign_of_life() const noexcept;

 private:
  ProcessLock(const RuntimeDirectory& directory, std::string name);

  const RuntimeDirectory* directory_;
  std::string name_;
  std::string path_;
  pid_t owner_;
  UniqueFd file_;  // -1: not locked
};

// When the process that has this lock took it or last gave a sign of life, in nanoseconds of the
// file system's clock; 0 where there is no such lock. Only good for comparing with another answer.
std::int64_t last_sign_of_life(const RuntimeDirectory& directory, const std::string& name) noexcept;

// Removes lock files, known by how their names begin, that killed processes have left. Does not
// open one that this process holds: closing it would give up the lock.
void remove_left_locks(const RuntimeDirectory& directory, const std::string& prefix);

}  // namespace weightmap::os
