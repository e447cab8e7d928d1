// What OpenOptions::protection asks for before anything of a file is read.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Puts a snapshot in the place of the file, if one is asked for, and writes down what protects the
// mapping that will be made. Fails with invalid_argument for a snapshot that is to be written
// through, else as os::take_snapshot() does.
Result<void> take_protection(Checkpoint::Access::State& state);

}  // namespace weightmap
