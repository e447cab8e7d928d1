// The name of a value in a container: the keys on the way to it, joined by dots.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/tensor_table.hpp"

namespace weightmap::torch {

// Returns an empty name for TensorSpec::is_root.
std::string joined_name(const value::Tree& tree, const std::vector<PathNode>& paths,
                        std::uint32_t path, const value::Cell& key);

}  // namespace weightmap::torch
