// In how many elements two tensors differ, and by how much.
//
//   const auto found = weightmap::difference(before.view, after.view);
//   if (!found) return fail(found.error());
//   found->differing;                             // of found->count elements
//   found->largest;                               // |a - b|, at the element found->at
//
// Elements of one type differ if their bits do, so no difference means the same bytes. Of two
// floating point types, such as float32 and bfloat16 after a conversion, the values are compared:
// there a zero equals a zero of the other sign, and a NaN any NaN. Integers are exact, also those
// of 64 bits; the differences of other numbers are computed in double, those of complex numbers as
// the modulus. What quantized and packed types store are not their values, so that of these bits
// are compared and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/statistics.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// Plain values.
struct TensorDifference {
  std::uint64_t count = 0;      // elements of each
  std::uint64_t differing = 0;  // of these
  // Of those that differ: the same value in other bits. A zero of the other sign, another NaN, a
  // bool that is true by another byte.
  std::uint64_t same_value = 0;
  // Of those that differ: one of the two is NaN or infinite.
  std::uint64_t not_finite = 0;
  // The largest |a - b| of all others, infinite where double does not reach so far; nothing where
  // there are none. Of integers a std::uint64_t.
  std::optional<Number> largest;
  // The index of the first element, row-major, that differs so much, along each dimension.
  std::vector<std::int64_t> at;
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and what
// is found does not depend on how many. `progress` is called by the calling thread, about each MiB
// of `a`. What lies in the mapping without gaps and in this machine's byte order is read there, as
// statistics() does; anything else in copies of at most 1 MiB. Reads the mappings, which raises
// SIGBUS where a file was truncated. Fails with invalid_argument if the shapes differ; with
// unsupported for two types of which one is no floating point type, and where one tensor has a lazy
// bit that the other has not; with limit_exceeded where the strides of both repeat what is stored
// more often than OpenOptions::repeats allows, without the dimensions along which both have stride
// 0, unless equal strides repeat equal bytes.
WEIGHTMAP_API Result<TensorDifference> difference(const TensorView& a, const TensorView& b,
                                                  const Progress& progress = {});

// Whether two tensors have the same type, shape and bits. As difference(), but in this thread, and
// stops at the first element that differs.
WEIGHTMAP_API Result<bool> same_bits(const TensorView& a, const TensorView& b,
                                     const Progress& progress = {});

}  // namespace weightmap
