#include "runtime/system/process/process_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap::os {
namespace {

// The maximum number of attempts to open a file that other processes remove and create again.
constexpr int most_tries = 16;

// The locks of this process. A record lock belongs to the whole process: it does not exclude other
// threads, and closing any descriptor of the file releases it. So only one thread may have a lock's
// file open. Locks are a property of the process, hence the single instance.
class OwnLocks {
 public:
  static OwnLocks& of_this_process() {
    static OwnLocks& locks = *new OwnLocks;  // never destroyed: a static warmer may outlive it
    // A fork waits for changes by other threads; a child has none of its parent's locks.
    static const int registered = ::pthread_atfork([] { of_this_process().mutex_.lock(); },
                                                   [] { of_this_process().mutex_.unlock(); },
                                                   [] {
                                                     of_this_process().paths_.clear();
                                                     of_this_process().mutex_.unlock();
                                                   });
    static_cast<void>(registered);
    return locks;
  }

  // Returns false if a thread has it already.
  bool add(const std::string& path) {
    const std::lock_guard guard(mutex_);
    return paths_.insert(path).second;
  }
  void remove(const std::string& path) noexcept {
    const std::lock_guard guard(mutex_);
    paths_.erase(path);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

// Returns 0 or errno; EAGAIN if another process has the lock.
int lock_whole(const UniqueFd& file) noexcept {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_SETLK, &whole) == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

// Returns -1 if another process has the lock.
Result<UniqueFd> open_locked(const RuntimeDirectory& directory, const std::string& name) {
  Result<UniqueFd> file;
  for (int i = 0; i < most_tries; ++i) {
    file = open_own_file(directory, name, O_RDWR | O_CREAT);
    if (!file) continue;  // possibly because it was just removed
    const int error = lock_whole(*file);
    if (error == EAGAIN) return UniqueFd();
    if (error != 0)
      return tl::unexpected<Error>(
          os_error("lock " + bytes::quote((directory.path() / name).native(), 4096), error));
    if (has_name(directory.descriptor(), name, file->get())) return file;
    file = UniqueFd();
  }
  return file;
}

}  // namespace

ProcessLock::ProcessLock(const RuntimeDirectory& directory, std::string name)
    : directory_(&directory),
      name_(std::move(name)),
      path_((directory.path() / name_).string()),
      owner_(::getpid()) {}

namespace {

// Removes a path from the list unless the lock is kept, also after an exception.
class AddedPath {
 public:
  AddedPath(OwnLocks& own, std::string path) : own_(own), path_(std::move(path)) {}
  AddedPath(const AddedPath&) = delete;
  AddedPath& operator=(const AddedPath&) = delete;
  ~AddedPath() {
    if (!kept_) own_.remove(path_);
  }
  void keep() noexcept { kept_ = true; }

 private:
  OwnLocks& own_;
  std::string path_;
  bool kept_ = false;
};

}  // namespace

Result<std::optional<ProcessLock>> ProcessLock::try_lock(const RuntimeDirectory& directory,
                                                         const std::string& name) {
  ProcessLock lock(directory, name);
  OwnLocks& own = OwnLocks::of_this_process();
  std::string path = lock.path_;
  if (!own.add(path)) return std::nullopt;
  AddedPath added(own, std::move(path));  // declared before the file, which is closed first
  Result<UniqueFd> file = open_locked(directory, name);
  if (!file) return tl::unexpected<Error>(file.error());
  if (file->get() < 0) return std::nullopt;
  lock.file_ = std::move(*file);
  added.keep();
  return std::optional<ProcessLock>(std::move(lock));
}

ProcessLock::~ProcessLock() {
  if (file_.get() < 0 || owner_ != ::getpid()) return;
  if (has_name(directory_->descriptor(), name_, file_.get()))
    ::unlinkat(directory_->descriptor(), name_.c_str(), 0);
  file_ = UniqueFd();
  OwnLocks::of_this_process().remove(path_);
}

void ProcessLock::give_sign_of_life() const noexcept { ::futimens(file_.get(), nullptr); }

std::uint32_t own_process_id() noexcept { return static_cast<std::uint32_t>(::getpid()); }

// Does not open the file, since closing it would release a lock of this process.
std::int64_t last_sign_of_life(const RuntimeDirectory& directory,
                               const std::string& name) noexcept {
  struct stat status {};
  if (::fstatat(directory.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

namespace {

void remove_left_lock(const RuntimeDirectory& directory, const std::string& name) {
  OwnLocks& own = OwnLocks::of_this_process();
  std::string path = (directory.path() / name).string();
  if (!own.add(path)) return;
  const AddedPath added(own, std::move(path));  // no thread of this process takes it meanwhile
  remove_unlocked(directory.descriptor(), name);
}

}  // namespace

void remove_left_locks(const RuntimeDirectory& directory, const std::string& prefix) {
  const Result<std::vector<std::string>> names = names_in(directory.descriptor(), prefix);
  if (!names) return;
  for (const std::string& name : *names) remove_left_lock(directory, name);
}

}  // namespace weightmap::os
