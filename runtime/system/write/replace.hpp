// Renames within a directory, and what a file gets of the one that it replaces.
#pragma once

#include <sys/stat.h>

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

// Gives the open file the owner, the group and the permissions of `old`, as far as this process
// may. No user gains rights that `old` did not grant: if the group cannot be kept, its members
// count as others, so the new group has no rights, and others keep only those that the old group
// had, too. Fails with io if the permissions cannot be set.
Result<void> take_permissions(int descriptor, const struct stat& old);
// Does the same with those of a file in a directory, if there is one.
Result<void> take_permissions_of(int directory, const std::string& name, int descriptor);

}  // namespace weightmap::os
