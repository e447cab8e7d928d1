#include "tools/snapshot/ownership.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

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

}  // namespace weightmap::cli::snapshot
