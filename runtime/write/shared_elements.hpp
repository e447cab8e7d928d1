// Tensors that share their elements, in a format that cannot say so.
#pragma once

#include <vector>

#include "weightmap/safetensors_writer.hpp"

namespace weightmap {

// Takes the tensors that are dropped out of `tensors`, and tells them by `dropped`. Fails with
// invalid_argument, naming two tensors, where `how` refuses them.
Result<void> settle_shared(std::vector<SafetensorsTensor>& tensors, SharedElements how,
                           std::vector<SafetensorsReport::Dropped>& dropped);

}  // namespace weightmap
