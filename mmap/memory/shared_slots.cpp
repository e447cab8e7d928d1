#include "mmap/memory/shared_slots.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <utility>

#include "mmap/mapping.hpp"
#include "mmap/memory/shared_file.hpp"
#include "mmap/os_error.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/bytes/escape.hpp"

namespace weightmap::os {
namespace {

namespace ipc = boost::interprocess;

// Of tries to open a file that others remove and make anew.
constexpr int most_openings = 64;
// Locks may lie behind the end of a file.
constexpr off_t users_byte = off_t{1} << 62;

// 0 or errno. `type`: F_RDLCK, F_WRLCK or F_UNLCK.
int set_lock(const UniqueFd& file, int command, int type, off_t byte) noexcept {
  struct flock lock {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int result = 0;
  do {
    result = ::fcntl(file.get(), command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

std::string quoted(const std::filesystem::path& path) { return bytes::quote(path.native(), 4096); }

Result<UniqueFd> open_file(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                       S_IRUSR | S_IWUSR));
  if (file.get() < 0) return os_failure("open " + quoted(path));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return os_failure("look at " + quoted(path));
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return failure(ErrorCode::invalid_argument, quoted(path) + " is no regular file of this user");
  return file;
}

Result<std::uint64_t> size_of(const UniqueFd& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return os_failure("look at the shared slots");
  return static_cast<std::uint64_t>(status.st_size);
}

// Nobody else has it open. All of the memory is there now, or none.
Result<void> make_room(const UniqueFd& file, std::uint64_t bytes) {
  if (::ftruncate(file.get(), 0) != 0) return os_failure("empty the shared slots");
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  if (error == 0) return {};
  static_cast<void>(!::ftruncate(file.get(), 0));
  return tl::unexpected<Error>(
      os_error("get " + std::to_string(bytes) + " bytes of shared memory", error));
}

}  // namespace

Result<SharedSlots> SharedSlots::open(const std::string& name, std::size_t slots,
                                      std::uint64_t slot_bytes) {
  std::uint64_t bytes = 0;
  if (!bytes::checked_mul<std::uint64_t>(slots, slot_bytes, &bytes) || bytes == 0 ||
      bytes > static_cast<std::uint64_t>(users_byte))
    return failure(ErrorCode::invalid_argument,
                   "the shared slots have no size, or too large a one");
  TRY_ASSIGN(const std::filesystem::path path, shared_path(name));
  for (int tries = 0; tries < most_openings; ++tries) {
    TRY_ASSIGN(UniqueFd file, open_file(path));
    SharedSlots opened(path, std::move(file));
    TRY_ASSIGN(const bool has_joined, opened.join(bytes));
    if (!has_joined) continue;
    TRY(opened.map(bytes));
    return opened;
  }
  return failure(ErrorCode::io, "others remove " + quoted(path) + " again and again");
}

SharedSlots::SharedSlots(std::filesystem::path path, UniqueFd file) noexcept
    : path_(std::move(path)), owner_(::getpid()), file_(std::move(file)) {}

Result<bool> SharedSlots::join(std::uint64_t bytes) const {
  const bool is_alone = set_lock(file_, F_OFD_SETLK, F_WRLCK, users_byte) == 0;
  if (!is_alone)  // waits for whoever is making it, or is just removing it
    if (const int error = set_lock(file_, F_OFD_SETLKW, F_RDLCK, users_byte))
      return tl::unexpected<Error>(os_error("lock " + quoted(path_), error));
  if (!has_name()) return false;
  TRY_ASSIGN(const std::uint64_t found, size_of(file_));
  if (is_alone) {
    if (found != bytes) {
      TRY(make_room(file_, bytes));
    }
    if (const int error = set_lock(file_, F_OFD_SETLK, F_RDLCK, users_byte))
      return tl::unexpected<Error>(os_error("lock " + quoted(path_), error));
    return true;
  }
  if (found == bytes) return true;
  if (found == 0) return false;
  return failure(ErrorCode::invalid_argument,
                 quoted(path_) + " has " + std::to_string(found) + " bytes of slots, not " +
                     std::to_string(bytes) + ", and is in use: all must ask for the same slots");
}

Result<void> SharedSlots::map(std::uint64_t bytes) {
  try {
    mapped_ = ipc::mapped_region(Mappable(file_.get()), ipc::read_write, 0, bytes);
  } catch (const ipc::interprocess_exception& refusal) {
    return tl::unexpected<Error>(os_error("map the shared slots", refusal.get_native_error()));
  }
  return {};
}

SharedSlots::~SharedSlots() {
  if (file_.get() < 0 || owner_ != ::getpid()) return;
  // First given up: of two who end at once, neither would be alone.
  set_lock(file_, F_OFD_SETLK, F_UNLCK, users_byte);
  if (set_lock(file_, F_OFD_SETLK, F_WRLCK, users_byte) == 0 && has_name()) ::unlink(path_.c_str());
}

bool SharedSlots::has_name() const noexcept {
  struct stat named {};
  struct stat open {};
  return ::lstat(path_.c_str(), &named) == 0 && ::fstat(file_.get(), &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

bool SharedSlots::try_lock(std::size_t slot) const noexcept {
  return set_lock(file_, F_OFD_SETLK, F_WRLCK, static_cast<off_t>(slot)) == 0;
}

void SharedSlots::unlock(std::size_t slot) const noexcept {
  set_lock(file_, F_OFD_SETLK, F_UNLCK, static_cast<off_t>(slot));
}

}  // namespace weightmap::os
