// Changes zip archives record by record: what comes out is laid out as torch would, with the right
// offsets and checksums, but for a field that is sometimes left wrong. What is no archive is
// changed as pickles in a row, as torch wrote them before it wrote archives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fuzz/random.hpp"

namespace weightmap::fuzz {

std::vector<std::byte> mutate_zip(std::span<const std::byte> archive, Random& random);

}  // namespace weightmap::fuzz
