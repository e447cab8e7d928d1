// Opening a checkpoint: from files to a state that serves them.
#pragma once

#include <memory>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Opens a remote file, and those of its set. ViewMemory::mapped maps their copies, whose bytes the
// caller brings in. `options` are complete here.
Result<Checkpoint> open_arriving(std::shared_ptr<ArrivingFile> file, const OpenOptions& options,
                                 ViewMemory view_memory);

}  // namespace weightmap
