// Computes the checksums of all storages with one read of the disk.
#pragma once

#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"

namespace weightmap {

// Implements the member function of Checkpoint of the same name.
CrcReport verify_crc(Checkpoint::State& state, const Progress& progress);

}  // namespace weightmap
