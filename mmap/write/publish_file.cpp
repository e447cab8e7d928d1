#include "mmap/write/publish_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "mmap/os_error.hpp"
#include "mmap/unique_fd.hpp"

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> refused(const std::string& action) {
  return tl::unexpected<Error>(os_error(action, errno));
}

// What has this name, which may be nothing.
Result<std::optional<struct stat>> look_at(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return status;
  if (errno == ENOENT) return std::nullopt;
  return refused("look at the file");
}

Result<void> check_target(const File& file, const struct stat& target) {
  if (S_ISLNK(target.st_mode))
    return failure(ErrorCode::invalid_argument,
                   "is a symbolic link: publish to the file that it leads to");
  if (!S_ISREG(target.st_mode))
    return failure(ErrorCode::invalid_argument, "is not a regular file");
  if (target.st_dev == file.generation().device && target.st_ino == file.generation().inode)
    return failure(ErrorCode::invalid_argument, "is the same file as the new one");
  return {};
}

// That the name still leads to the file that was checked.
Result<void> check_source(const File& file, const fs::path& from) {
  const Result<std::optional<struct stat>> now = look_at(from);
  if (!now) return tl::unexpected<Error>(now.error());
  if (!*now || (*now)->st_ino != file.generation().inode || !S_ISREG((*now)->st_mode))
    return failure(ErrorCode::invalid_argument,
                   "the new file is a symbolic link, or was replaced meanwhile");
  return file.check_unchanged();
}

Result<void> write_to_disk(int descriptor, const std::string& what) {
  if (::fsync(descriptor) == 0) return {};
  return refused("write " + what + " to the disk");
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

Result<void> write_folder_to_disk(const fs::path& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return refused("open the folder");
  return write_to_disk(opened.get(), "the folder");
}

// The owner first: a change of owner takes set-id bits away. Not everybody may give files away.
Result<void> take_permissions(int descriptor, const struct stat& like) {
  if (::fchown(descriptor, like.st_uid, like.st_gid) != 0 && errno != EPERM)
    return refused("give the file its owner");
  if (::fchmod(descriptor, like.st_mode & 07777) != 0)
    return refused("give the file its permissions");
  return {};
}

// A file beside the target that is gone again unless it took its place.
class TemporaryFile {
 public:
  static Result<TemporaryFile> beside(const fs::path& target) {
    const std::string name = "." + target.filename().native() + "." + std::to_string(::getpid()) +
                             "." + std::to_string(std::random_device()()) + ".tmp";
    TemporaryFile made(folder_of(target) / name);
    made.descriptor_ =
        UniqueFd(::open(made.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (made.descriptor() >= 0) return made;
    const int error_number = errno;
    made.path_.clear();
    return tl::unexpected<Error>(os_error("create a file beside the target", error_number));
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), descriptor_(std::move(other.descriptor_)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  int descriptor() const noexcept { return descriptor_.get(); }
  Result<void> rename_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) return refused("rename the copy");
    path_.clear();
    return {};
  }

 private:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
  UniqueFd descriptor_;
};

// Into a page cache of pages that are soon written, so from page cache to page cache.
Result<void> copy_bytes(const File& from, int to) {
  if (::ioctl(to, FICLONE, from.descriptor()) == 0) return {};
  // Where there is too little space this says so at once. Not every file system knows it.
  if (::fallocate(to, 0, 0, static_cast<off_t>(from.size())) != 0 && errno != EOPNOTSUPP)
    return refused("get " + std::to_string(from.size()) + " bytes of disk space");
  off_t offset = 0;
  while (static_cast<std::uint64_t>(offset) < from.size()) {
    const auto rest = static_cast<std::size_t>(from.size() - static_cast<std::uint64_t>(offset));
    const ssize_t count = ::sendfile(to, from.descriptor(), &offset, rest);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return refused("copy the file");
    if (count == 0) return from.check_unchanged();
  }
  return {};
}

Result<void> rename_copy(const File& file, const struct stat& permissions, const fs::path& target) {
  Result<TemporaryFile> copy = TemporaryFile::beside(target);
  if (!copy) return tl::unexpected<Error>(copy.error());
  if (Result<void> ok = copy_bytes(file, copy->descriptor()); !ok) return ok;
  if (Result<void> ok = take_permissions(copy->descriptor(), permissions); !ok) return ok;
  if (Result<void> ok = write_to_disk(copy->descriptor(), "the copy"); !ok) return ok;
  if (Result<void> ok = file.check_unchanged(); !ok) return ok;
  return copy->rename_to(target);
}

// Answers false, with nothing done, if the two are on different file systems.
Result<bool> rename_file(const File& file, const fs::path& from, const fs::path& target,
                         const struct stat& before, const struct stat& permissions) {
  if (Result<void> ok = take_permissions(file.descriptor(), permissions); !ok)
    return tl::unexpected<Error>(ok.error());
  Result<void> written = write_to_disk(file.descriptor(), "the new file");
  // That may have taken long.
  if (written) written = check_source(file, from);
  if (written && ::rename(from.c_str(), target.c_str()) == 0) return true;
  const int error_number = errno;
  if (Result<void> back = take_permissions(file.descriptor(), before); !back)
    return tl::unexpected<Error>(back.error());
  if (!written) return tl::unexpected<Error>(written.error());
  if (error_number == EXDEV) return false;
  return tl::unexpected<Error>(os_error("rename the new file", error_number));
}

Result<void> write_names_to_disk(const fs::path& from, const fs::path& target) {
  Result<void> ok = write_folder_to_disk(folder_of(target));
  if (ok && folder_of(from) != folder_of(target)) ok = write_folder_to_disk(folder_of(from));
  if (!ok) ok.error().message.insert(0, "published, but: ");
  return ok;
}

}  // namespace

Result<PublishedFile> publish_file(const File& file, const fs::path& from, const fs::path& target,
                                   bool copy) {
  if (Result<void> ok = check_source(file, from); !ok) return tl::unexpected<Error>(ok.error());
  const Result<std::optional<struct stat>> old = look_at(target);
  if (!old) return tl::unexpected<Error>(old.error());
  if (*old)
    if (Result<void> ok = check_target(file, **old); !ok) return tl::unexpected<Error>(ok.error());
  struct stat own {};
  if (::fstat(file.descriptor(), &own) != 0) return refused("look at the new file");
  const struct stat& permissions = *old ? **old : own;
  PublishedFile published{{}, old->has_value(), copy};
  if (!copy) {
    const Result<bool> renamed = rename_file(file, from, target, own, permissions);
    if (!renamed) return tl::unexpected<Error>(renamed.error());
    published.copied = !*renamed;
  }
  if (published.copied)
    if (Result<void> ok = rename_copy(file, permissions, target); !ok)
      return tl::unexpected<Error>(ok.error());
  if (Result<void> ok = write_names_to_disk(from, target); !ok)
    return tl::unexpected<Error>(ok.error());
  Result<Generation> now = generation_at(target);
  if (!now) {
    now.error().message.insert(0, "published, but: ");
    return tl::unexpected<Error>(std::move(now.error()));
  }
  published.generation = *now;
  return published;
}

}  // namespace weightmap::os
