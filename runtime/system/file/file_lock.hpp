// A shared or exclusive lock on an open file.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// It belongs to the open file (F_OFD_SETLK), so that several users in one process exclude each
// other, and ends with the process. A forked child would share the open file and keep the lock, so
// there the descriptor is replaced by one of another open file.
class FileLock {
 public:
  enum class Users { shared, alone };

  // `file` must outlive the lock, be writable, and not be mapped: a mapping keeps the open file.
  explicit FileLock(const File& file);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

  // Never waits. Another value of `users` changes the lock. Returns false if a conflicting lock
  // exists. Fails with io if the system refuses.
  Result<bool> take(Users users);
  // True if this process took it, not a parent.
  bool is_own() const noexcept;

 private:
  const File& file_;
  std::atomic<std::uint32_t> taken_in_ = ~std::uint32_t{0};  // by fork count; initially never
};

}  // namespace weightmap::os
