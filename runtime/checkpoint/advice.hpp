// OpenOptions::access.
#pragma once

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Advises the tensors as the options of the open say. Fails with invalid_argument for a pattern
// that matches nothing.
Result<void> advise_as_opened(const Checkpoint& checkpoint);

}  // namespace weightmap
