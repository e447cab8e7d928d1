// Writes small floating point types as float32, which has all their values, for other readers.
#pragma once

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// Works like for_each_piece(), with elements converted to float32; memory stays bounded. Fails with
// unsupported for types other than float16, bfloat16, the float8 types and float32 itself.
Result<void> for_each_float32_piece(const TensorView& view, const PieceSink& sink);

}  // namespace weightmap::cli
