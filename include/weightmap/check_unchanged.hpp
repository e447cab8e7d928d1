// A check for code that reads the mapping directly and keeps results computed from it.
#pragma once

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Call this after reading the elements of `view`. It fails as Checkpoint::copy_bytes() does if they
// may not be those of the opened file, since it was truncated, lost or written to.
WEIGHTMAP_API Result<void> check_unchanged(const Checkpoint& checkpoint, const TensorView& view);

}  // namespace weightmap
