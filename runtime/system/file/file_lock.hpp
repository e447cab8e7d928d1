// Locks on open files, and what a forked child has of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/system/file/file.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// A descriptor that a forked child does not share: there it is replaced by one of another open
// file, which has none of its locks. Without /proc it stays shared.
class NotShared {
 public:
  // The descriptor must stay open during the object's lifetime.
  explicit NotShared(int descriptor);
  NotShared(const NotShared&) = delete;
  NotShared& operator=(const NotShared&) = delete;
  ~NotShared();

 private:
  int descriptor_;
};

// It belongs to the open file (F_OFD_SETLK), so that several users in one process exclude each
// other, and ends with the process; a forked child does not keep it.
class FileLock {
 public:
  enum class Users { shared, alone };

  // `file` must outlive the lock, be writable, and not be mapped: a mapping keeps the open file.
  explicit FileLock(const File& file);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Never waits. Another value of `users` changes the lock. Returns false if a conflicting lock
  // exists. Fails with io if the system refuses.
  Result<bool> take(Users users);
  // True if this process took it, not a parent.
  bool is_own() const noexcept;

 private:
  const File& file_;
  const NotShared not_shared_;
  std::atomic<std::uint32_t> taken_in_ = ~std::uint32_t{0};  // by fork count; initially never
};

}  // namespace weightmap::os
