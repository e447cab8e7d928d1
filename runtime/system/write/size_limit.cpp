#include "runtime/system/write/size_limit.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "runtime/system/os_error.hpp"

namespace weightmap::os {

Result<void> check_size_limit(std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur)
    return {};
  Error error = os_error("make a file of " + std::to_string(bytes) + " bytes", EFBIG);
  error.message += " (RLIMIT_FSIZE is " + std::to_string(limit.rlim_cur) + ")";
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap::os
