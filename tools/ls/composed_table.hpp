// Shows tensors that are more than one dense block, for `ls`.
#pragma once

#include <span>
#include <string>

#include "tools/support/json_out.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap::cli {

// Returns a line for each: name, form, dtype, shape, and further facts.
std::string composed_table(std::span<const ComposedTensor> composed);
// Returns "2 quantized, 1 sparse_coo"; empty if there are none.
std::string composed_summary(std::span<const ComposedTensor> composed);
Json describe(const ComposedTensor& composed);

}  // namespace weightmap::cli
