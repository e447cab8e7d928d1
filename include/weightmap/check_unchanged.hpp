// For code that reads the mapping itself and keeps what it computed from it.
#pragma once

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Called after the elements of `view` were read: fails as Checkpoint::copy_bytes() does where they
// may not be those of the file that was opened, since it was truncated, lost or written to.
WEIGHTMAP_API Result<void> check_unchanged(const Checkpoint& checkpoint, const TensorView& view);

}  // namespace weightmap
