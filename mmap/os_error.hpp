// The one place where an errno becomes an Error.
#pragma once

#include <cerrno>
#include <string>
#include <tl/expected.hpp>

#include "weightmap/error.hpp"

namespace weightmap::os {

// io: "cannot open the file: No such file or directory", for `action` "open the file".
Error os_error(const std::string& action, int error_number,
               std::uint64_t file_offset = Error::no_offset);

// The same of errno, as what a function returns.
inline tl::unexpected<Error> os_failure(const std::string& action) {
  return tl::unexpected<Error>(os_error(action, errno));
}

}  // namespace weightmap::os
