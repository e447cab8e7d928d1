// Renames within a directory.
#pragma once

#include <string>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Atomically gives the file `from` the name `to`, and replaces what has that name. Fails with io if
// the system refuses.
Result<void> rename_in(int directory, const std::string& from, const std::string& to);
// Fails with invalid_argument if `to` exists.
Result<void> rename_to_free(int directory, const std::string& from, const std::string& to);

// Returns that error.
tl::unexpected<Error> name_is_taken();

}  // namespace weightmap::os
