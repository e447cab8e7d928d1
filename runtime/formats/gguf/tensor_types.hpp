// The tensor types of GGUF by their numbers.
#pragma once

#include <cstdint>

#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

// Fails with unsupported for a type that ggml has removed, and for an unknown number.
Result<DType> tensor_type(std::int32_t number);

}  // namespace weightmap::gguf
