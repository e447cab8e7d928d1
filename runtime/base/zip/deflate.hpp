// Raw deflate, as zip stores it; inflate.hpp is the inverse.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weightmap::zip {

// Returns the compressed bytes; empty if compression does not save space.
std::vector<std::byte> deflate(std::span<const std::byte> content);

}  // namespace weightmap::zip
