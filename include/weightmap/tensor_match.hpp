// Finds tensors by a pattern.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"

namespace weightmap {

// Returns the positions in Checkpoint::tensors() of all tensors whose names match a pattern
// (name_pattern.hpp), in file order. A literal name matches, too, even with wildcard characters.
// May be called from any thread.
WEIGHTMAP_API std::vector<std::size_t> match_tensors(const Checkpoint& checkpoint,
                                                     std::string_view pattern);

}  // namespace weightmap
