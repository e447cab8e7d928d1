// Mappings of this process that become read-only.
#pragma once

#include "mmap/pages/smaps.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// All of it. Fails with io if the system refuses, or if it is not mapped any more.
Result<void> protect(const MappedArea& area);

}  // namespace weightmap::os
