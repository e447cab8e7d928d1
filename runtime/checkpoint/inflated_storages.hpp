// Inflates compressed storages into this process's memory.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Fails with unsupported, naming a tensor or storage, if one needs a copy that the options forbid.
Result<void> check_zero_copy(const Checkpoint::State& state);

// Inflates the storages, compares their checksums, and adds their memory to the sources. Does
// nothing without such storages. Fails with corrupt, naming the record, if one is damaged; with io
// if there is no memory for them; with cancelled if the options' progress returns false.
Result<void> inflate_storages(Checkpoint::State& state);

}  // namespace weightmap
