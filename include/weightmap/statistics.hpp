// What the numbers of a tensor are like: their range, mean and spread, and which are none.
//
//   const auto found = weightmap::statistics(checkpoint.get("norm.weight")->view);
//   if (!found) return fail(found.error());
//   found->mean;                                  // of the finite elements
//   found->nan + found->infinite;                 // the others
//
// What is stored is read once, however often strides repeat it: then it is first counted how often
// they do, which takes 8 bytes of memory for each stored element, and time in proportion to these
// times the rank. Counts, minima and maxima are exact, also of integers of 64 bits, and so is the
// sum behind the mean of integers. All else is computed in double: floats of one or two bytes by
// how often each of their values occurs, wider ones in blocks of 4096 elements around the mean of
// each, which are joined. The error of mean and std is a few units in the last of double's 15
// digits for each thousand blocks, whatever the mean is.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// An element as it is: of an integer type, an integer; else a double.
using Number = std::variant<std::int64_t, std::uint64_t, double>;

// Plain values. A bool counts as 0 or 1, and -0 as a zero.
struct TensorStatistics {
  std::uint64_t count = 0;     // elements
  std::uint64_t nan = 0;       // of these
  std::uint64_t infinite = 0;  // of either sign
  std::uint64_t zeros = 0;
  // Of the finite elements; nothing where there is none.
  std::optional<Number> min;
  std::optional<Number> max;
  // ... and nothing where double does not hold the sum: above 1e150 or so.
  std::optional<double> mean;
  std::optional<double> std;  // divided by their number, not by one less
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and its
// figures do not depend on how many. `progress` is called by the calling thread, about each MiB of
// what is read. Reads the mapping, which raises SIGBUS where the file was truncated. Fails with
// unsupported for complex numbers, which have no order, for quantized and packed types, which do
// not store their values, and for lazy negatives.
WEIGHTMAP_API Result<TensorStatistics> statistics(const TensorView& view,
                                                  const Progress& progress = {});

}  // namespace weightmap
