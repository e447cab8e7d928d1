// From a pattern that a person typed to tensors.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

// Positions in Checkpoint::tensors() of all tensors whose names match a pattern (name_pattern.hpp),
// in the order of the file. A name may be given as it is, with what would otherwise be a wildcard.
// May be called from any thread.
WEIGHTMAP_API std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint,
                                                     std::string_view pattern);

}  // namespace weightmap
