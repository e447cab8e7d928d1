#include "runtime/system/memory/shared_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap::os {
namespace {

constexpr const char* shared_memory = "/dev/shm";
constexpr std::size_t longest_name = 255;

}  // namespace

Result<std::filesystem::path> shared_path(const std::string& name) {
  const bool is_name = !name.empty() && name.front() != '.' && name.size() <= longest_name &&
                       name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
  if (is_name) return std::filesystem::path(shared_memory) / name;
  return failure(ErrorCode::invalid_argument,
                 bytes::quote(name) +
                     " is no name for shared memory: 1 to 255 bytes, not beginning "
                     "with a dot, without slashes");
}

Result<void> check_free(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return failure(ErrorCode::invalid_argument,
                 bytes::quote(path.native(), 4096) + " is there already; remove it first");
}

Result<std::uint64_t> shared_bytes_left() {
  struct statvfs status {};
  if (::statvfs(shared_memory, &status) != 0) return os_failure("look at /dev/shm");
  std::uint64_t left = 0;
  if (!bytes::checked_mul<std::uint64_t>(status.f_bavail, status.f_frsize, &left)) left = ~left;
  return left;
}

Result<UniqueFd> open_shared_file(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() >= 0) return file;
  return tl::unexpected<Error>(os_error("open " + bytes::quote(path.native(), 4096), errno));
}

Result<void> remove_shared_file(const std::filesystem::path& path) {
  struct stat status {};
  const std::string action = "remove " + bytes::quote(path.native(), 4096);
  if (::lstat(path.c_str(), &status) != 0) return os_failure(action);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    return failure(ErrorCode::invalid_argument,
                   bytes::quote(path.native(), 4096) + " is no regular file of this user");
  if (::unlink(path.c_str()) != 0) return os_failure(action);
  return {};
}

}  // namespace weightmap::os
