// Mutates pickles opcode by opcode, so that the result usually is still a pickle.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fuzz/mutation.hpp"

namespace weightmap::fuzz {

std::vector<std::byte> mutate_pickle(std::span<const std::byte> pickle, Random& random);

}  // namespace weightmap::fuzz
