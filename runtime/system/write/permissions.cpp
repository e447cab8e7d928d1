#include "runtime/system/write/permissions.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/system/os_error.hpp"

namespace weightmap::os {

// Sets the owner first, since that clears set-id bits. The process may lack the right to change it,
// and some file systems have no owners.
Result<void> take_permissions(int descriptor, const struct stat& old) {
  mode_t mode = old.st_mode & 07777;
  if (::fchown(descriptor, old.st_uid, old.st_gid) != 0) {
    mode &= ~static_cast<mode_t>(S_ISUID);
    if (::fchown(descriptor, static_cast<uid_t>(-1), old.st_gid) != 0) {
      const mode_t members = (mode & S_IRWXG) >> 3;
      mode &= ~static_cast<mode_t>(S_ISGID | S_IRWXG | S_IRWXO) | (mode & S_IRWXO & members);
    }
  }
  if (::fchmod(descriptor, mode) == 0) return {};
  return os_failure("give the file its permissions");
}

Result<void> take_permissions_of(int directory, const std::string& name, int descriptor) {
  struct stat old {};
  if (::fstatat(directory, name.c_str(), &old, 0) == 0) return take_permissions(descriptor, old);
  if (errno == ENOENT) return {};
  return os_failure("look at the file");
}

}  // namespace weightmap::os
