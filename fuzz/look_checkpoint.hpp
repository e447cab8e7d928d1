// Reads all of a checkpoint, through every accessor.
#pragma once

#include "weightmap/checkpoint.hpp"

namespace weightmap::fuzz {

// Reads tensors and their bytes, by index, name and path; storages; the value tree, with the
// tensors that its nodes describe.
void look_at(const Checkpoint& checkpoint);

// Bounds the time for one input; a refusal by a limit is not a finding.
OpenOptions small_limits();

}  // namespace weightmap::fuzz
