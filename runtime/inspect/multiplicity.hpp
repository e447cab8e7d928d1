// How often each element of a storage is one of a tensor whose strides repeat it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::inspect {

// One count for each element from the first to the last that the tensor reaches; their sum is the
// number of its elements. Takes time in proportion to these times the rank, whatever the sizes are.
// Precondition: the tensor has elements.
inline Result<std::vector<std::uint64_t>> multiplicities(const TensorView& view,
                                                         const Progress& progress) {
  std::vector<std::uint64_t> counts(stored_elements(view));
  std::uint64_t repeats = 1;  // of all: what dimensions of stride 0 do
  counts[0] = 1;
  std::size_t reached = 1;  // the counts from here on are 0
  for (std::size_t dim = 0; dim < view.rank(); ++dim) {
    const auto size = static_cast<std::size_t>(view.shape()[dim]);
    const auto stride = static_cast<std::size_t>(view.strides()[dim]);
    if (size == 1) continue;
    if (stride == 0) {
      repeats *= size;  // fits, as view.numel() does
      continue;
    }
    TRY(go_on(progress, 0, view.stored_bytes().size()));
    // The sum of the counts at 0, 1 ... size - 1 strides before: as sums over all strides before,
    // of which those that are too far back are taken away again, from the end on.
    reached += (size - 1) * stride;
    for (std::size_t i = stride; i < reached; ++i) counts[i] += counts[i - stride];
    for (std::size_t i = reached; i-- > size * stride;) counts[i] -= counts[i - size * stride];
  }
  for (std::uint64_t& count : counts) count *= repeats;
  return counts;
}

}  // namespace weightmap::inspect
