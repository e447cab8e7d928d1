// Storages that a file holds compressed, in memory of this process's own.
#pragma once

#include <span>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Fails with unsupported, naming what would have to be copied, if the options allow no copies: the
// first before anything is inflated, the second for a catalog of whatever origin.
Result<void> check_zero_copy(const OpenOptions& options, const format::Parsed& parsed);
Result<void> check_zero_copy(Checkpoint::State& state);

// Inflates them, compares their checksums, and adds what they lie in to the sources. Nothing if
// there are none. Fails with corrupt, naming the record, if one is damaged; with io, if there is no
// memory for them; with cancelled, if the options' progress says so.
Result<void> inflate_storages(Checkpoint::State& state,
                              std::span<const format::CompressedStorage> compressed);

}  // namespace weightmap
