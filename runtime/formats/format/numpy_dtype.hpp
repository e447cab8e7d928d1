// The dtypes of numpy that tensors have.
#pragma once

#include <optional>
#include <string_view>

#include "weightmap/dtype.hpp"

namespace weightmap::format {

// Returns the dtype with a name such as "f4", which numpy writes behind the byte order; nullopt if
// no tensor has it.
std::optional<DType> numpy_dtype(std::string_view name) noexcept;

}  // namespace weightmap::format
