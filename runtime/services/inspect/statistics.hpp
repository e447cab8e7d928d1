// statistics() with an explicit threshold, for tests.
#pragma once

#include "weightmap/inspect.hpp"

namespace weightmap::inspect {

// Tensors of at least `counted_from` elements of one or two bytes are counted by value.
Result<TensorStatistics> statistics(const TensorView& view, const Progress& progress,
                                    std::uint64_t counted_from);

}  // namespace weightmap::inspect
