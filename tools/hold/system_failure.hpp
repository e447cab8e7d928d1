// Errors of system calls.
#pragma once

#include <string>
#include <system_error>

#include "weightmap/result.hpp"

namespace weightmap::cli::hold {

// Returns io: "cannot ACTION: message of errno".
inline tl::unexpected<Error> system_failure(const std::string& action, int error_number) {
  return failure(ErrorCode::io,
                 "cannot " + action + ": " + std::generic_category().message(error_number));
}

}  // namespace weightmap::cli::hold
