#include "runtime/system/write/replace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/system/os_error.hpp"
#include "runtime/system/uninterrupted.hpp"

namespace weightmap::os {
namespace {

bool rename_if_free(int directory, const std::string& from, const std::string& to) noexcept {
  const int renamed = uninterrupted([&] {
    return ::renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE);
  });
  if (renamed == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;  // unsupported by the file system
  const int linked =
      uninterrupted([&] { return ::linkat(directory, from.c_str(), directory, to.c_str(), 0); });
  if (linked != 0) return false;
  ::unlinkat(directory, from.c_str(), 0);
  return true;
}

}  // namespace

tl::unexpected<Error> name_is_taken() {
  return failure(ErrorCode::invalid_argument, "is there already; remove it first");
}

Result<void> rename_in(int directory, const std::string& from, const std::string& to) {
  const int renamed =
      uninterrupted([&] { return ::renameat(directory, from.c_str(), directory, to.c_str()); });
  if (renamed == 0) return {};
  return os_failure("rename the new file");
}

Result<void> rename_to_free(int directory, const std::string& from, const std::string& to) {
  if (rename_if_free(directory, from, to)) return {};
  if (errno == EEXIST) return name_is_taken();
  return os_failure("give the file its name");
}

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
