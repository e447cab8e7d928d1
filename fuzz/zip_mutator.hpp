// Mutates zip archives record by record: the result has torch's layout, with correct offsets and
// checksums except for a field that is sometimes left wrong. Any other input is mutated as
// consecutive pickles, torch's format before archives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fuzz/mutation.hpp"

namespace weightmap::fuzz {

std::vector<std::byte> mutate_zip(std::span<const std::byte> archive, Random& random);

}  // namespace weightmap::fuzz
