// Looks at everything of a checkpoint, each thing in every way that there is to it.
#pragma once

#include "weightmap/checkpoint.hpp"

namespace weightmap::fuzz {

// A catalog that somebody forged may lead from a name to another tensor, or to none.
enum class Names : bool { must_lead_back, may_lead_anywhere };

// Tensors and their bytes, by index, name and path; storages.
void look_at_tensors(const Checkpoint& checkpoint, Names names = Names::must_lead_back);
// And the value tree, with the tensors that its nodes describe.
void look_at(const Checkpoint& checkpoint);

// So that one input is done within a moment: what a limit refuses is no finding.
OpenOptions small_limits();

}  // namespace weightmap::fuzz
