// Looks at everything of a checkpoint, each thing in every way that there is to it.
#pragma once

#include "weightmap/checkpoint.hpp"

namespace weightmap::fuzz {

// Tensors and their bytes, by index, name and path; storages; the value tree, with the tensors that
// its nodes describe.
void look_at(const Checkpoint& checkpoint);

// So that one input is done within a moment: what a limit refuses is no finding.
OpenOptions small_limits();

}  // namespace weightmap::fuzz
