// The .npy format, version 1.0: magic, header length, a Python dict as text, the elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

// "<f4": the type of elements in this machine's byte order. Empty if numpy has no name for it.
std::string npy_description(DType dtype);

// Everything before the elements, for row-major elements in this machine's byte order. Fails with
// unsupported if numpy has no name for the type.
Result<std::string> npy_header(DType dtype, std::span<const std::int64_t> shape);

}  // namespace weightmap::cli
