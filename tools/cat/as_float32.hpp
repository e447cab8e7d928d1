// Small floating point types as float32, which has every value of them, for readers that know no
// others.
#pragma once

#include "weightmap/tensor_pieces.hpp"

namespace weightmap::cli {

// As for_each_piece(), of elements that are float32 afterwards; memory stays bounded. Fails with
// unsupported for types other than float16, bfloat16, the float8 types and float32 itself.
Result<void> for_each_float32_piece(const TensorView& view, const PieceSink& sink);

}  // namespace weightmap::cli
