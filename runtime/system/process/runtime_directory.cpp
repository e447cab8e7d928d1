#include "runtime/system/process/runtime_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"

namespace weightmap::os {
namespace {

constexpr mode_t others = S_IRWXG | S_IRWXO;

// An empty variable counts as unset.
std::string_view text_in(const char* variable) noexcept {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::string_view() : text;
}

// The required place and owner of the folder.
struct Wanted {
  std::string path;
  uid_t owner;
};

// A relative path would mean a different directory in each process. In our own variable it is an
// error; the specification of XDG_RUNTIME_DIR requires ignoring it there.
Result<Wanted> wanted_folder() {
  Wanted wanted{{}, ::geteuid()};
  if (const std::string_view own = text_in("WEIGHTMAP_RUNTIME_DIR"); !own.empty()) {
    if (!own.starts_with('/'))
      return failure(ErrorCode::invalid_argument,
                     "environment variable WEIGHTMAP_RUNTIME_DIR must be an absolute path");
    wanted.path += own;
  } else if (const std::string_view of_session = text_in("XDG_RUNTIME_DIR");
             of_session.starts_with('/')) {
    wanted.path = std::filesystem::path(of_session) / "weightmap";
  } else {
    wanted.path = "/dev/shm/weightmap-" + std::to_string(wanted.owner);
  }
  return wanted;
}

UniqueFd open_folder(const std::string& path) noexcept {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

tl::unexpected<Error> refuse(const std::string& path, std::string_view why) {
  return failure(ErrorCode::io,
                 "cannot use " + bytes::quote(path, 4096) + ", which " + std::string(why));
}

// `what` is the failed action, "open the folder"; the reason is errno.
tl::unexpected<Error> refused(const std::string& what, const std::string& path) {
  const int error_number = errno;
  return tl::unexpected<Error>(os_error(what + " " + bytes::quote(path, 4096), error_number));
}

Result<void> check_folder(const struct stat& status, const Wanted& wanted) {
  if (!S_ISDIR(status.st_mode)) return refuse(wanted.path, "is no directory");
  if (status.st_uid != wanted.owner) return refuse(wanted.path, "belongs to another user");
  if ((status.st_mode & others) != 0)
    return refuse(wanted.path, "lets other users in: chmod 700 it");
  return {};
}

Result<void> check_file(const struct stat& status, const std::string& path, uid_t owner) {
  if (!S_ISREG(status.st_mode)) return refuse(path, "is not a regular file");
  if (status.st_uid != owner) return refuse(path, "belongs to another user");
  if ((status.st_mode & others) != 0) return refuse(path, "lets other users in");
  if (status.st_nlink != 1) return refuse(path, "was removed or has more than one name");
  return {};
}

}  // namespace

Result<RuntimeDirectory> RuntimeDirectory::open() {
  TRY_ASSIGN(Wanted wanted, wanted_folder());
  UniqueFd descriptor = open_folder(wanted.path);
  if (descriptor.get() < 0 && errno == ENOENT) {
    if (::mkdir(wanted.path.c_str(), 0700) != 0 && errno != EEXIST)
      return refused("make the folder", wanted.path);
    descriptor = open_folder(wanted.path);
  }
  if (descriptor.get() < 0) return refused("open the folder", wanted.path);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return refused("look at", wanted.path);
  TRY(check_folder(status, wanted));
  return RuntimeDirectory(std::move(descriptor), std::move(wanted.path), wanted.owner);
}

std::string key_of(const Generation& generation) {
  std::array<char, 5 * (16 + 1)> text;
  char* end = text.data();
  for (const std::uint64_t number : {generation.device, generation.inode, generation.size,
                                     static_cast<std::uint64_t>(generation.mtime_ns),
                                     static_cast<std::uint64_t>(generation.ctime_ns)}) {
    if (end != text.data()) *end++ = '-';
    end = std::to_chars(end, text.data() + text.size(), number, 16).ptr;
  }
  return {text.data(), end};
}

Result<UniqueFd> open_own_file(const RuntimeDirectory& directory, const std::string& name,
                               int flags) {
  const std::string path = directory.path() / name;
  constexpr int added_flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd file(::openat(directory.descriptor(), name.c_str(), flags | added_flags, 0600));
  if (file.get() < 0) return refused("open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return refused("look at", path);
  TRY(check_file(status, path, directory.owner()));
  return file;
}

}  // namespace weightmap::os

weightmap::Result<std::filesystem::path> weightmap::runtime_directory() {
  TRY_ASSIGN(const os::RuntimeDirectory directory, os::RuntimeDirectory::open());
  return directory.path();
}
