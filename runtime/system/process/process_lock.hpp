// A lock for one process at a time that ends with the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/system/process/runtime_directory.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Held during its lifetime. It is a POSIX record lock on a file of its own in the runtime
// directory: the system releases it however the process ends, and a forked child does not have it.
// Boost's file_lock makes the same call, but opens its file by path, follows links, and passes the
// descriptor on to executed programs.
class ProcessLock {
 public:
  // Never waits. Returns nullopt if another process or thread has the lock. Fails with io if the
  // file cannot be created, or belongs to another user. `directory` must outlive the lock.
  static Result<std::optional<ProcessLock>> try_lock(const RuntimeDirectory& directory,
                                                     const std::string& name);

  ProcessLock(ProcessLock&&) noexcept = default;
  ProcessLock& operator=(ProcessLock&&) = delete;
  // Removes the file and releases the lock; does neither in a forked child.
  ~ProcessLock();

  // Writes a heartbeat for processes that wait for the lock: see last_sign_of_life().
  void give_sign_of_life() const noexcept;

 private:
  ProcessLock(const RuntimeDirectory& directory, std::string name);

  const RuntimeDirectory* directory_;
  std::string name_;
  std::string path_;
  pid_t owner_;
  UniqueFd file_;  // -1: not locked
};

std::uint32_t own_process_id() noexcept;

// Returns the time at which the owner took the lock or last wrote a heartbeat, in nanoseconds of
// the file system's clock; 0 if there is no such lock. Only comparable with other results.
std::int64_t last_sign_of_life(const RuntimeDirectory& directory, const std::string& name) noexcept;

// Removes lock files with this prefix that killed processes have left. Does not open one that this
// process holds, since closing it would release the lock.
void remove_left_locks(const RuntimeDirectory& directory, const std::string& prefix);

}  // namespace weightmap::os
