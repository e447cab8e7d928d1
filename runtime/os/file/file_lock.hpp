// A lock on an open file, which several processes share or one has alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/os/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Of the open file (F_OFD_SETLK), so that several users in one process keep apart, and the system
// takes it back when the process ends in whatever way. A forked child would share the open file and
// keep the lock for as long as it lives, so there the descriptor becomes one of another open file.
class FileLock {
 public:
  enum class Users { shared, alone };

  // `file` must outlive it, be open for writing, and not be mapped: a mapping keeps the open file.
  explicit FileLock(const File& file);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

  // Never waits. Another word changes the lock. false: others hold what excludes it. Fails with io
  // if the system refuses.
  Result<bool> take(Users users);
  // Whether this process took it, and not a parent.
  bool is_own() const noexcept;

 private:
  const File& file_;
  std::atomic<std::uint32_t> taken_in_ = ~std::uint32_t{0};  // by the count of forks; never
};

}  // namespace weightmap::os
