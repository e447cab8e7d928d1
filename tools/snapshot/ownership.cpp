#include "tools/snapshot/ownership.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {

Result<void> expect_own(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return failure(ErrorCode::io, std::strerror(errno));
  if (status.st_uid != ::geteuid())
    return failure(ErrorCode::invalid_argument, "belongs to user " + std::to_string(status.st_uid) +
                                                    ", not to user " + std::to_string(::geteuid()) +
                                                    ", so it is not used");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return failure(ErrorCode::invalid_argument, "others may write to it, so it is not used");
  return {};
}

Result<void> make_private(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    fs::permissions(at->path(), fs::perms::owner_read | fs::perms::owner_write, error);
    if (error) break;
  }
  if (error) return failure(ErrorCode::io, printable(folder.native()) + ": " + error.message());
  return {};
}

}  // namespace weightmap::cli::snapshot
