#include "runtime/system/file/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/mount.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::os {
namespace {

std::int64_t nanoseconds(const timespec& time) noexcept {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

Generation generation_of(const struct stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO (named pipe)";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "not a regular file";
}

Result<void> check_is_content(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) {
    Error error{ErrorCode::not_a_checkpoint,
                "is " + kind_of(status.st_mode) + ", expected a regular file",
                Error::no_offset,
                {}};
    if (S_ISDIR(status.st_mode)) error.os_error = EISDIR;
    return tl::unexpected<Error>(std::move(error));
  }
  if (status.st_size == 0) return failure(ErrorCode::not_a_checkpoint, "is empty");
  return {};
}

int open_retrying(const char* path, int flags) noexcept {
  return uninterrupted([&] { return ::open(path, flags); });
}

int look_at(int descriptor, struct stat& status) noexcept {
  return uninterrupted([&] { return ::fstat(descriptor, &status); });
}

// A directory cannot be opened for writing and a socket not at all; both get messages of their own.
tl::unexpected<Error> open_failure(const char* path, int error_number) {
  struct stat status {};
  if (::stat(path, &status) == 0)
    if (Result<void> ok = check_is_content(status); !ok && !S_ISREG(status.st_mode))
      return tl::unexpected<Error>(ok.error());
  Error error = os_error("open the file", error_number);
  if (error_number == ENOTDIR)
    error.message +=
        "; a member of an archive is FILE//MEMBER, with two slashes, to what opens a checkpoint, "
        "and is extracted for all else";
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Result<File> File::open(const std::filesystem::path& path, bool writable) {
  if (path.native().find('\0') != std::string::npos)
    return failure(ErrorCode::invalid_argument, "the path contains a zero byte");
  const int access = writable ? O_RDWR : O_RDONLY;
  UniqueFd descriptor(open_retrying(path.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (descriptor.get() < 0) return open_failure(path.c_str(), errno);
  return of(std::move(descriptor));
}

Result<File> File::open_foreign(const std::filesystem::path& path) {
  const UniqueFd seen(open_retrying(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (seen.get() < 0 || look_at(seen.get(), status) != 0) return os_failure("look at the file");
  if (Result<void> ok = check_is_content(status); !ok) return tl::unexpected<Error>(ok.error());
  return open("/proc/self/fd/" + std::to_string(seen.get()), false);
}

Result<File> File::from_descriptor(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0) return os_failure("use the descriptor");
  if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY)
    return tl::unexpected<Error>(os_error("read from the descriptor", EBADF));
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor);
  struct stat status {};
  if (look_at(descriptor, status) == 0 && S_ISREG(status.st_mode)) {
    UniqueFd again(open_retrying(self.c_str(), (flags & O_ACCMODE) | O_CLOEXEC));
    if (again.get() >= 0) return of(std::move(again));
  }
  UniqueFd own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) return os_failure("use the descriptor");
  Result<File> file = of(std::move(own));
  if (file) file->is_shared_ = true;
  return file;
}

Result<File> File::of(UniqueFd descriptor) {
  struct stat status {};
  if (look_at(descriptor.get(), status) != 0) return os_failure("look at the file");
  if (Result<void> ok = check_is_content(status); !ok) return tl::unexpected<Error>(ok.error());
  return File(std::move(descriptor), generation_of(status));
}

Result<File> File::in_memory(std::span<const std::byte> content) {
  if (content.empty()) return failure(ErrorCode::not_a_checkpoint, "is empty");
  File file{UniqueFd(), Generation{.size = content.size()}};
  file.memory_ = content;
  return file;
}

Result<Generation> File::current_generation() const {
  if (origin_ || is_in_memory()) return generation_;
  struct stat status {};
  if (look_at(descriptor_.get(), status) != 0) return os_failure("look at the file");
  return generation_of(status);
}

Result<void> File::check_unchanged() const {
  TRY_ASSIGN(const Generation now, current_generation());
  return now.same_content(generation_) ? Result<void>{} : changed(now);
}

Result<void> File::check_not_resized() const {
  TRY_ASSIGN(const Generation now, current_generation());
  return now.size == size() ? Result<void>{} : changed(now);
}

tl::unexpected<Error> File::changed(const Generation& now) const {
  return failure(ErrorCode::io, "the file changed since it was opened: it had " +
                                    std::to_string(size()) + " bytes and has now " +
                                    std::to_string(now.size) +
                                    ", or was written to; replace checkpoints by rename");
}

Result<void> File::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (!bytes::contains(size(), offset, out.size()))
    return bytes::leaves_source(*this, offset, out.size());
  if (is_in_memory()) return read_memory(offset, out);
  if (origin_) return origin_->read(offset, out);
  while (!out.empty()) {
    const ssize_t count = uninterrupted([&] {
      return ::pread(descriptor_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    });
    if (count < 0)
      return tl::unexpected<Error>(
          os_error("read " + std::to_string(out.size()) + " bytes", errno, offset));
    if (count == 0)
      return failure(ErrorCode::io,
                     "the file shrank while it was read: it had " + std::to_string(size()) +
                         " bytes when opened and ends now at or before byte " +
                         std::to_string(offset),
                     offset);
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

UniqueFd File::open_without_readahead() const {
  if (is_in_memory() || origin_) return {};
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor());
  if (open_may_drop_cache(self)) return {};
  UniqueFd other(::open(self.c_str(), O_RDONLY | O_CLOEXEC));
  if (other.get() >= 0) ::posix_fadvise(other.get(), 0, 0, POSIX_FADV_RANDOM);
  return other;
}

bool read_if_cached(int descriptor, std::uint64_t offset, std::span<std::byte> out) noexcept {
  const iovec to{out.data(), out.size()};
  const ssize_t count = ::preadv2(descriptor, &to, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  return count >= 0 && static_cast<std::size_t>(count) == out.size();
}

Result<void> File::read_memory(std::uint64_t offset, std::span<std::byte> out) const {
  Result<void> copied = copy_own_memory(memory_.subspan(offset, out.size()), out);
  if (!copied && copied.error().file_offset != Error::no_offset)
    copied.error().file_offset += offset;
  return copied;
}

void File::advise(Access access) const noexcept {
  if (is_shared_ || is_in_memory() || size() <= bytes::first_read) return;
  ::posix_fadvise(descriptor_.get(), 0, 0,
                  access == Access::random ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

}  // namespace weightmap::os

weightmap::Result<weightmap::Generation> weightmap::generation_at(
    const std::filesystem::path& path) {
  struct stat status {};
  if (os::uninterrupted([&] { return ::stat(path.c_str(), &status); }) == 0)
    return os::generation_of(status);
  Error error = os::os_error("look at the file", errno);
  error.file = bytes::escape(path.native(), 4096);
  return tl::unexpected<Error>(std::move(error));
}
