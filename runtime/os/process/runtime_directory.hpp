// The folder in which processes of one user find what they share: a folder in memory that others
// cannot write to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/os/unique_fd.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

class RuntimeDirectory {
 public:
  // $WEIGHTMAP_RUNTIME_DIR, else $XDG_RUNTIME_DIR/weightmap, else /dev/shm/weightmap-UID. Makes it,
  // with mode 0700, if it is not there. Fails with invalid_argument if the first is a relative
  // path, with io if the system refuses, or if what is there is no directory, belongs to somebody
  // else, or lets others in: what lies in such a directory may have been planted.
  static Result<RuntimeDirectory> open();

  // For openat() and its like, so that nobody can put another folder in its place meanwhile.
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

// Five hexadecimal numbers with "-" between them: what the name of a file in that folder says of
// the checkpoint that it is about.
std::string key_of(const Generation& generation);

// Opens a file in that folder with these flags (O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK are added) and
// mode 0600. Fails with io if it cannot be opened, or is not a regular file of this user that
// nobody else may read or write, under this one name.
Result<UniqueFd> open_own_file(const RuntimeDirectory& directory, const std::string& name,
                               int flags);

}  // namespace weightmap::os
