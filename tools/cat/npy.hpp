// Writes the .npy format, version 1.0: magic, header length, a Python dict as text, the elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// Returns the bytes before the elements, for row-major elements in this machine's byte order. Fails
// with unsupported if numpy lacks the type.
Result<std::string> npy_header(DType dtype, std::span<const std::int64_t> shape);

// Works like for_each_piece(), with elements converted to float32, which has all values of small
// floating point types, for other readers; memory stays bounded. Fails with
// unsupported for types other than float16, bfloat16, the float8 types and float32 itself.
Result<void> for_each_float32_piece(const TensorView& view, const PieceSink& sink);

}  // namespace weightmap::cli
