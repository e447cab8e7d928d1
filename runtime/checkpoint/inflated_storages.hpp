// Storages that a file holds compressed, in memory of this process's own.
#pragma once

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Fails with unsupported, naming what would have to be copied, if the options allow no copies.
Result<void> check_zero_copy(const Checkpoint::State& state);

// Inflates them, compares their checksums, and adds what they lie in to the sources. Nothing if
// there are none. Fails with corrupt, naming the record, if one is damaged; with io, if there is no
// memory for them; with cancelled, if the options' progress says so.
Result<void> inflate_storages(Checkpoint::State& state);

}  // namespace weightmap
