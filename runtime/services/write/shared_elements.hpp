// Handles tensors that share elements, which the format cannot express.
#pragma once

#include <vector>

#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Moves the dropped tensors from `tensors` to `dropped`. Fails with invalid_argument, naming two
// tensors, if `how` refuses sharing.
Result<void> settle_shared(std::vector<SafetensorsTensor>& tensors, SharedElements how,
                           std::vector<SafetensorsReport::Dropped>& dropped);

}  // namespace weightmap
