// Counts how often a tensor's strides repeat each element of its storage.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::inspect {

// Returns a count for each element from the first to the last one of the tensor; their sum is the
// number of its elements. The time is proportional to these times the rank, whatever the sizes are.
// Precondition: the tensor has elements.
inline Result<std::vector<std::uint64_t>> multiplicities(const TensorView& view,
                                                         const Progress& progress) {
  std::vector<std::uint64_t> counts(stored_elements(view));
  std::uint64_t repeats = 1;  // of all elements, by dimensions of stride 0
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
    // Sums the counts at 0, 1 ... size - 1 strides before each element: adds all multiples of the
    // stride before, then subtracts those that are too far back, from the end on.
    reached += (size - 1) * stride;
    for (std::size_t i = stride; i < reached; ++i) counts[i] += counts[i - stride];
    for (std::size_t i = reached; i-- > size * stride;) counts[i] -= counts[i - size * stride];
  }
  for (std::uint64_t& count : counts) count *= repeats;
  return counts;
}

}  // namespace weightmap::inspect
