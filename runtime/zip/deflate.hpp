// Raw deflate, as zip stores it: the other half of inflate.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weightmap::zip {

// The compressed bytes; empty if they would not be fewer.
std::vector<std::byte> deflate(std::span<const std::byte> content);

}  // namespace weightmap::zip
