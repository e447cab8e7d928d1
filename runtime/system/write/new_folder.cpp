#include "runtime/system/write/new_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/file/version_link.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"
#include "runtime/system/unique_fd.hpp"
#include "runtime/system/write/replace.hpp"

namespace weightmap::os {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> failed_to(const char* action, const std::error_code& failed) {
  return tl::unexpected<Error>(os_error(action, failed.value()));
}

}  // namespace

Result<std::optional<NewFolder>> NewFolder::begin(const fs::path& path) {
  NewFolder made;
  std::error_code failed;
  TRY_ASSIGN(made.path_, resolved_name(path));
  if (fs::exists(fs::symlink_status(made.path_, failed))) {
    NameLock::remove_abandoned(made.path_);
    return name_is_taken();
  }
  made.filled_ =
      made.path_.parent_path() / ("." + made.path_.filename().native() + ".weightmap-new");
  TRY_ASSIGN(std::optional<NameLock> lock, NameLock::take(made.path_));
  if (!lock) return std::nullopt;
  made.lock_.emplace(*std::move(lock));
  // Another may have finished it since.
  if (fs::exists(fs::symlink_status(made.path_, failed))) return name_is_taken();
  fs::remove_all(made.filled_, failed);
  if (!failed) fs::create_directory(made.filled_, failed);
  if (failed) return failed_to("make the folder", failed);
  return made;
}

Result<NewFolder> NewFolder::create(const fs::path& path) {
  TRY_ASSIGN(std::optional<NewFolder> begun, begin(path));
  if (!begun) return failure(ErrorCode::io, "another process makes it now");
  return *std::move(begun);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)),
      filled_(std::move(other.filled_)),
      lock_(std::exchange(other.lock_, std::nullopt)) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (lock_) fs::remove_all(filled_, ignored);
}

Result<void> NewFolder::take_permissions_of(const fs::path& other) const {
  const UniqueFd made(uninterrupted(
      [&] { return ::open(filled_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  struct stat old {};
  if (made.get() < 0 || ::stat(other.c_str(), &old) != 0) return os_failure("look at the folder");
  return take_permissions(made.get(), old);
}

Result<void> NewFolder::commit(bool durable) {
  if (durable) TRY(sync_folder(filled_));
  TRY_ASSIGN(const UniqueFd beside, open_directory(path_.parent_path()));
  TRY(rename_to_free(beside.get(), filled_.filename(), path_.filename()));
  lock_.reset();
  return durable ? sync_directory(beside.get()) : Result<void>();
}

}  // namespace weightmap::os
