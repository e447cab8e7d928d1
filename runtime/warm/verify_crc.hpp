// The checksums of all storages, with the disk read once.
#pragma once

#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/verify_storages.hpp"

namespace weightmap {

// What the member function of Checkpoint of the same name does.
CrcReport verify_crc(Checkpoint::State& state, const Progress& progress);

}  // namespace weightmap
