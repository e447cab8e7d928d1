#include "mmap/os_error.hpp"

#include <cerrno>
#include <system_error>

namespace weightmap::os {

Error os_error(const std::string& action, int error_number, std::uint64_t file_offset) {
  return {ErrorCode::io,
          "cannot " + action + ": " + std::generic_category().message(error_number),
          file_offset,
          {},
          error_number};
}

tl::unexpected<Error> os_failure(const std::string& action) {
  return tl::unexpected<Error>(os_error(action, errno));
}

}  // namespace weightmap::os
