// Statistics of a tensor's elements: range, mean, NaNs. (stats.hpp has the counters of an open.)
//
//   const auto found = weightmap::statistics(checkpoint.get("norm.weight")->view);
//   if (!found) return tl::unexpected(found.error());
//   found->mean;                                  // of the finite elements
//   found->nan + found->infinite;                 // the others
//
// Stored elements are read once, however often strides repeat them: the repetitions are counted
// first, which takes 8 bytes of memory for each stored element, and time proportional to their
// number times the rank. Counts, minima and maxima are exact, also for 64-bit integers, and so is
// the sum behind the mean of integers. The rest is computed in double: floats of one or two bytes
// by the frequency of each value, wider ones in blocks of 4096 elements around each block's mean,
// which are then combined. The error of mean and std is a few units in the last of double's 15
// digits for each thousand blocks, whatever the mean is.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// An element's value: an integer for integer types, otherwise a double.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

// Plain values. A bool counts as 0 or 1, and -0 as a zero.
struct TensorStatistics {
  std::uint64_t count = 0;     // elements
  std::uint64_t nan = 0;       // NaNs among them
  std::uint64_t infinite = 0;  // of either sign
  std::uint64_t zeros = 0;
  // Over the finite elements; unset if there are none.
  std::optional<Number> min;
  std::optional<Number> max;
  // ... and unset if the sum leaves the range of double: above 1e150 or so.
  std::optional<double> mean;
  std::optional<double> std;  // divided by their number, not by one less
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and the
// figures do not depend on their number. `progress` is called by the calling thread, about once per
// MiB. Reads the mapping, which raises SIGBUS if the file was truncated. Fails with unsupported for
// complex numbers, which have no order, for quantized and packed types, which do not store their
// values, and for lazy negatives.
WEIGHTMAP_API Result<TensorStatistics> statistics(const TensorView& view,
                                                  const Progress& progress = {});

}  // namespace weightmap
