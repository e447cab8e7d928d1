// Makes mappings of this process read-only.
#pragma once

#include "mmap/pages/smaps.hpp"
#include "weightmap/result.hpp"

namespace weightmap::os {

// Protects the whole area. Fails with io if the system refuses, or if it is no longer mapped.
Result<void> protect(const MappedArea& area);

}  // namespace weightmap::os
