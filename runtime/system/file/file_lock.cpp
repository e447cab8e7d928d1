#include "runtime/system/file/file_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <set>

#include "runtime/system/os_error.hpp"
#include "runtime/system/process/fork_safe.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::os {
namespace {

// Runs between fork() and exec() without allocations. Without /proc the lock stays shared.
void detach_descriptor(int descriptor) noexcept {
  char path[32] = "/proc/self/fd/";
  char* const number = path + std::strlen(path);
  *std::to_chars(number, path + sizeof path - 1, descriptor).ptr = '\0';
  const int other = uninterrupted([&] { return ::open(path, O_RDWR | O_CLOEXEC); });
  if (other < 0) return;
  ::dup3(other, descriptor, O_CLOEXEC);
  ::close(other);
}

// The descriptors of all locks of this process, which a forked child opens again.
class Descriptors {
 public:
  static Descriptors& of_this_process() {
    static Descriptors& descriptors = *new Descriptors;  // never destroyed: statics may hold locks
    static const int registered = ::pthread_atfork(
        [] { of_this_process().mutex_.lock(); }, [] { of_this_process().mutex_.unlock(); },
        [] {
          for (const int descriptor : of_this_process().all_) detach_descriptor(descriptor);
          of_this_process().mutex_.unlock();
        });
    static_cast<void>(registered);
    return descriptors;
  }

  void add(int descriptor) {
    const std::lock_guard guard(mutex_);
    all_.insert(descriptor);
  }
  void remove(int descriptor) noexcept {
    const std::lock_guard guard(mutex_);
    all_.erase(descriptor);
  }

 private:
  std::mutex mutex_;
  std::set<int> all_;
};

}  // namespace

NotShared::NotShared(int descriptor) : descriptor_(descriptor) {
  Descriptors::of_this_process().add(descriptor);
}

NotShared::~NotShared() { Descriptors::of_this_process().remove(descriptor_); }

FileLock::FileLock(const File& file) : file_(file), not_shared_(file.descriptor()) {
  count_forks();
}

Result<bool> FileLock::take(Users users) {
  struct flock whole {};
  whole.l_type = users == Users::alone ? F_WRLCK : F_RDLCK;
  whole.l_whence = SEEK_SET;
  if (uninterrupted([&] { return ::fcntl(file_.descriptor(), F_OFD_SETLK, &whole); }) == 0) {
    taken_in_ = fork_count();
    return true;
  }
  if (errno == EAGAIN || errno == EACCES) return false;
  return os_failure("lock the file");
}

bool FileLock::is_own() const noexcept { return taken_in_ == fork_count(); }

}  // namespace weightmap::os
