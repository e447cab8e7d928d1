// What a file takes over from the one whose place it takes.
#pragma once

#include <sys/stat.h>

#include "weightmap/result.hpp"

namespace weightmap::os {

// Gives the open file the owner, the group and the permissions of `old`, as far as this process
// may. Nobody gets rights that `old` did not give: where the group cannot be kept, its members
// count as others, so the new group has no rights, and others have those that both had. Fails with
// io if the permissions cannot be set.
Result<void> take_permissions(int descriptor, const struct stat& old);

}  // namespace weightmap::os
