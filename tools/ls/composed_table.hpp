// Tensors that are more than one dense block, as `ls` and `info` show them.
#pragma once

#include <span>
#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/composed_tensor.hpp"

namespace weightmap::cli {

// A line each: name, form, dtype, shape, and what else there is to say.
std::string composed_table(std::span<const ComposedTensor> composed);
// "2 quantized, 1 sparse_coo"; empty if there are none.
std::string composed_summary(std::span<const ComposedTensor> composed);
Json describe(const ComposedTensor& composed);

}  // namespace weightmap::cli
