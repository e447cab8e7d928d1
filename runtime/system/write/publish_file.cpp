#include "runtime/system/write/publish_file.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/unique_fd.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

// Returns the status of this name; nullopt if it does not exist.
Result<std::optional<struct stat>> look_at(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return status;
  if (errno == ENOENT) return std::nullopt;
  return os_failure("look at the file");
}

bool is_same_file(const File& file, const struct stat& status) noexcept {
  return status.st_dev == file.generation().device && status.st_ino == file.generation().inode;
}

Result<void> check_target(const File& file, const struct stat& target) {
  if (S_ISLNK(target.st_mode))
    return failure(ErrorCode::invalid_argument,
                   "is a symbolic link: publish to the file that it leads to");
  if (S_ISDIR(target.st_mode))
    return failure(ErrorCode::invalid_argument,
                   "is a folder: add the name that the file gets in it");
  if (!S_ISREG(target.st_mode))
    return failure(ErrorCode::invalid_argument, "is not a regular file");
  if (is_same_file(file, target))
    return failure(ErrorCode::invalid_argument, "is the same file as the new one");
  return {};
}

// A link could be renamed, but its target would keep its own name.
Result<void> check_not_a_link(const struct stat& source, const fs::path& from) {
  if (!S_ISLNK(source.st_mode)) return {};
  std::error_code unknown;
  const fs::path real = fs::canonical(from, unknown);
  return failure(ErrorCode::invalid_argument,
                 "the new file is a symbolic link: follow it (--follow), publish a copy (--copy), "
                 "or publish " +
                     (unknown ? "the file that it leads to" : bytes::quote(real.native(), 4096)) +
                     " by its own name");
}

// Checks that the name still refers to the checked file.
Result<void> check_source(const File& file, const fs::path& from) {
  TRY_ASSIGN(const std::optional<struct stat> now, look_at(from));
  if (now) TRY(check_not_a_link(*now, from));
  if (!now || !is_same_file(file, *now))
    return failure(ErrorCode::invalid_argument,
                   "the new file was replaced by another while it was looked at; run it again");
  return file.check_unchanged();
}

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

Result<void> sync_directory_of(const fs::path& path) {
  TRY_ASSIGN(const UniqueFd opened, open_directory(directory_of(path)));
  return sync_directory(opened.get());
}

// Copies through the page cache, since the target's pages are dirty anyway.
Result<void> copy_bytes(const File& from, NewFile& to, const Progress& progress) {
  constexpr std::uint64_t piece = std::uint64_t{16} << 20;
  if (share_blocks(to.descriptor(), from)) return {};
  // Reports a lack of space at once.
  TRY(to.reserve(from.size()));
  off_t offset = 0;
  while (static_cast<std::uint64_t>(offset) < from.size()) {
    const std::uint64_t rest = from.size() - static_cast<std::uint64_t>(offset);
    const ssize_t count = ::sendfile(to.descriptor(), from.descriptor(), &offset,
                                     static_cast<std::size_t>(std::min(rest, piece)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return os_failure("copy the file");
    if (count == 0) return from.check_unchanged();
    TRY(go_on(progress, static_cast<std::uint64_t>(offset), from.size()));
  }
  return {};
}

Result<Generation> publish_copy(const File& file, const struct stat& permissions,
                                const fs::path& target, const Progress& progress) {
  TRY_ASSIGN(NewFile copy, NewFile::create(target, {.follows_links = false}));
  TRY(copy_bytes(file, copy, progress));
  TRY(take_permissions(copy.descriptor(), permissions));
  TRY(file.check_unchanged());
  TRY(copy.commit());
  TRY_ASSIGN(const File made, File::from_descriptor(copy.descriptor()));
  return made.generation();
}

// Returns false, with nothing done, if the two are on different file systems.
Result<bool> rename_file(const File& file, const fs::path& from, const fs::path& target,
                         const struct stat& before, const struct stat& permissions) {
  TRY(take_permissions(file.descriptor(), permissions));
  Result<void> written;
  if (::fsync(file.descriptor()) != 0) written = os_failure("write the new file to the disk");
  // The sync may have taken long, so the source is checked again.
  if (written) written = check_source(file, from);
  if (written && ::rename(from.c_str(), target.c_str()) == 0) return true;
  const int error_number = errno;
  TRY(take_permissions(file.descriptor(), before));
  TRY(written);
  if (error_number == EXDEV) return false;
  return tl::unexpected<Error>(os_error("rename the new file", error_number));
}

Result<Generation> finish_rename(const File& file, const fs::path& from, const fs::path& target) {
  Result<Generation> now = file.current_generation();
  Result<void> ok = sync_directory_of(target);
  if (ok && directory_of(from) != directory_of(target)) ok = sync_directory_of(from);
  // The file may have been written to between the last check and the rename.
  if (ok) ok = file.check_unchanged();
  if (ok) return now;
  ok.error().message.insert(0, "is in place, but: ");
  return tl::unexpected<Error>(std::move(ok.error()));
}

}  // namespace

Result<PublishedFile> publish_file(const File& file, const fs::path& from, const fs::path& target,
                                   const PublishHow& how) {
  if (!how.copy) TRY(check_source(file, from));
  if (std::error_code unknown; !fs::exists(directory_of(target), unknown) && !unknown)
    return tl::unexpected<Error>(os_error("publish to a folder that is not there", ENOENT));
  TRY_ASSIGN(const std::optional<struct stat> old, look_at(target));
  if (old) TRY(check_target(file, *old));
  struct stat own {};
  if (::fstat(file.descriptor(), &own) != 0) return os_failure("look at the new file");
  const struct stat& permissions = old ? *old : own;
  PublishedFile published{{}, old.has_value(), how.copy};
  if (!how.copy) {
    TRY_ASSIGN(const bool renamed, rename_file(file, from, target, own, permissions));
    published.copied = !renamed;
  }
  TRY_ASSIGN(published.generation, published.copied
                                       ? publish_copy(file, permissions, target, how.progress)
                                       : finish_rename(file, from, target));
  return published;
}

}  // namespace weightmap::os
