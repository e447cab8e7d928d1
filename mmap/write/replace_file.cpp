#include "mmap/write/replace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <span>
#include <string>

#include "mmap/os_error.hpp"
#include "mmap/unique_fd.hpp"
#include "mmap/write/write_all.hpp"

namespace weightmap::os {
namespace {

Result<void> check_may_replace(const std::filesystem::path& path, const File& kept) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  if (status.st_dev == kept.generation().device && status.st_ino == kept.generation().inode)
    return failure(ErrorCode::invalid_argument, "would replace the checkpoint");
  if (!S_ISREG(status.st_mode))
    return failure(ErrorCode::invalid_argument, "is not a regular file");
  return {};
}

// Not to be guessed, since others may write to the folder, too.
std::string temporary_name(const std::filesystem::path& path) {
  return path.native() + "." + std::to_string(std::random_device()()) + ".tmp";
}

}  // namespace

Result<void> replace_file(const std::filesystem::path& path, std::string_view content,
                          const File& kept) {
  if (Result<void> ok = check_may_replace(path, kept); !ok) return ok;
  const std::string temporary = temporary_name(path);
  const UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return tl::unexpected<Error>(os_error("create the file", errno));
  if (write_all(file.get(), std::as_bytes(std::span(content))) &&
      ::rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  const int error_number = errno;
  ::unlink(temporary.c_str());
  return tl::unexpected<Error>(os_error("write the file", error_number));
}

}  // namespace weightmap::os
