#include "runtime/system/write/rename.hpp"

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

}  // namespace weightmap::os
