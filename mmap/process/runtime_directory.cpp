#include "mmap/process/runtime_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "mmap/os_error.hpp"
#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"

namespace weightmap::os {
namespace {

constexpr mode_t others = S_IRWXG | S_IRWXO;

// An empty variable counts as unset.
std::string_view text_in(const char* variable) noexcept {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::string_view() : text;
}

// A relative path would mean another directory in each process. One in our own variable is a
// mistake that the user is told of; the specification of XDG_RUNTIME_DIR says to ignore it there.
Result<std::filesystem::path> wanted_path() {
  const std::string_view own = text_in("WEIGHTMAP_RUNTIME_DIR");
  if (own.starts_with('/')) return own;
  if (!own.empty())
    return failure(ErrorCode::invalid_argument,
                   "environment variable WEIGHTMAP_RUNTIME_DIR must be an absolute path");
  const std::string_view of_session = text_in("XDG_RUNTIME_DIR");
  if (of_session.starts_with('/')) return std::filesystem::path(of_session) / "weightmap";
  return std::filesystem::path("/dev/shm/weightmap-" + std::to_string(::geteuid()));
}

UniqueFd open_folder(const std::filesystem::path& path) noexcept {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

tl::unexpected<Error> refuse(const std::filesystem::path& path, std::string_view why) {
  return failure(ErrorCode::io,
                 "cannot use " + bytes::quote(path.native(), 4096) + ", which " + std::string(why));
}

}  // namespace

Result<RuntimeDirectory> RuntimeDirectory::open() {
  TRY_ASSIGN(std::filesystem::path path, wanted_path());
  UniqueFd descriptor = open_folder(path);
  if (descriptor.get() < 0 && errno == ENOENT) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return tl::unexpected<Error>(
          os_error("make the folder " + bytes::quote(path.native(), 4096), errno));
    descriptor = open_folder(path);
  }
  if (descriptor.get() < 0)
    return tl::unexpected<Error>(
        os_error("open the folder " + bytes::quote(path.native(), 4096), errno));
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0)
    return tl::unexpected<Error>(os_error("look at " + bytes::quote(path.native(), 4096), errno));
  if (status.st_uid != ::geteuid()) return refuse(path, "belongs to another user");
  if ((status.st_mode & others) != 0) return refuse(path, "lets other users in: chmod 700 it");
  return RuntimeDirectory(std::move(descriptor), std::move(path), status.st_uid);
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
                               int flags, std::uint64_t* size) {
  UniqueFd file(::openat(directory.descriptor(), name.c_str(),
                         flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const auto path = [&] { return directory.path() / name; };  // for errors
  if (file.get() < 0)
    return tl::unexpected<Error>(os_error("open " + bytes::quote(path().native(), 4096), errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return tl::unexpected<Error>(os_error("look at " + bytes::quote(path().native(), 4096), errno));
  if (!S_ISREG(status.st_mode)) return refuse(path(), "is not a regular file");
  if (status.st_uid != directory.owner()) return refuse(path(), "belongs to another user");
  if ((status.st_mode & others) != 0) return refuse(path(), "lets other users in");
  if (status.st_nlink != 1) return refuse(path(), "was removed or has more than one name");
  if (size != nullptr) *size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

}  // namespace weightmap::os
