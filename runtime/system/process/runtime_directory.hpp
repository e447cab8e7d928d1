// The folder in which processes of one user share files: in memory, and private to the user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/system/unique_fd.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap::os {

class RuntimeDirectory {
 public:
  // Uses $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID.
  // Creates it with mode 0700 if needed. Fails with invalid_argument if the first is a relative
  // path, with io if the system refuses, or if the path is not a directory, belongs to another
  // user, or is accessible to other users, who may have planted files in it.
  static Result<RuntimeDirectory> open();

  // For openat() and the like, so that the folder cannot be replaced meanwhile.
  int descriptor() const noexcept { return descriptor_.get(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  // The effective user of the process when it was opened.
  uid_t owner() const noexcept { return owner_; }

 private:
  RuntimeDirectory(UniqueFd descriptor, std::filesystem::path path, uid_t owner)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), owner_(owner) {}

  UniqueFd descriptor_;
  std::filesystem::path path_;
  uid_t owner_;
};

// Returns five hexadecimal numbers joined by "-", which identify a checkpoint in names of files
// there.
std::string key_of(const Generation& generation);

// Opens a file in that folder with these flags (O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK are added) and
// mode 0600. Fails with io if it cannot be opened, is not a regular file of this user, is
// accessible to other users, or has another name as well.
Result<UniqueFd> open_own_file(const RuntimeDirectory& directory, const std::string& name,
                               int flags);

}  // namespace weightmap::os

namespace weightmap {

// Returns $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID.
// Creates the directory with mode 0700 if needed. Fails with invalid_argument if
// $WEIGHTMAP_RUNTIME_DIR is a relative path (a relative $XDG_RUNTIME_DIR is ignored, as its
// specification requires), with io if the system refuses, or if the existing path is not a
// directory, is a symbolic link, belongs to another user, or is accessible to other users. May be
// called from any thread.
WEIGHTMAP_API Result<std::filesystem::path> runtime_directory();

}  // namespace weightmap
