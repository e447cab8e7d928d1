// The tensor types of GGUF, by the numbers that files have of them.
#pragma once

#include <cstdint>

#include "weightmap/dtype.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

// Fails with unsupported for a type that ggml has removed, and for a number that it does not know.
Result<DType> tensor_type(std::int32_t number);

}  // namespace weightmap::gguf
