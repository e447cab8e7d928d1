// Converts errno to an Error.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Returns io: "cannot open the file: No such file or directory", for `action` "open the file".
Error os_error(const std::string& action, int error_number,
               std::uint64_t file_offset = Error::no_offset);

// Does the same with errno, as the return value of a function.
[[gnu::cold]] tl::unexpected<Error> os_failure(const std::string& action);

}  // namespace weightmap::os
