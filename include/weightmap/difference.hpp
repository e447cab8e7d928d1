// Counts the elements in which two tensors differ, and by how much.
//
//   const auto found = weightmap::difference(before.view, after.view);
//   if (!found) return tl::unexpected(found.error());
//   found->differing;                             // of found->count elements
//   found->largest;                               // |a - b|, at the element found->at
//
// Elements of one type differ if their bits do, so no difference means identical bytes. For two
// floating point types, such as float32 and bfloat16 after a conversion, values are compared: zeros
// of both signs are equal, and so are all NaNs. Integers are compared exactly, including 64-bit
// ones; other differences are computed in double, for complex numbers as the modulus. Quantized and
// packed types do not store their values, so only their bits are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/statistics.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {

// A plain value without references.
struct TensorDifference {
  std::uint64_t count = 0;      // elements of each tensor
  std::uint64_t differing = 0;  // of these
  // Differing elements of equal value, such as zeros of different sign, different NaNs, or
  // different bytes of a true bool.
  std::uint64_t same_value = 0;
  // Differing elements that are NaN or infinite in one of the tensors.
  std::uint64_t not_finite = 0;
  // The largest |a - b| of all others, infinite beyond the range of double; unset if there are
  // none. For integers it is a std::uint64_t.
  std::optional<Number> largest;
  // The index, along each dimension, of the first element in row-major order with this difference.
  std::vector<std::int64_t> at;
};

// May be called from any thread; from 8 MiB on, up to eight threads work until it returns, and the
// result does not depend on their number. `progress` is called by the calling thread, about once
// per MiB of `a`. Data that is in the mapping without gaps and in this machine's byte order is read
// there, as by statistics(); other data in copies of at most 1 MiB. Reads the mappings, which
// raises SIGBUS if a file was truncated. Fails with invalid_argument if the shapes differ; with
// unsupported for two different types unless both are floating point, and if only one tensor has a
// lazy bit; with limit_exceeded if the strides of both repeat the stored elements more often than
// OpenOptions::repeats allows, not counting dimensions along which both have stride 0, unless equal
// strides repeat equal bytes.
WEIGHTMAP_API Result<TensorDifference> difference(const TensorView& a, const TensorView& b,
                                                  const Progress& progress = {});

// Returns true if two tensors have the same type, shape and bits. Works like difference(), but in
// this thread, and stops at the first different element.
WEIGHTMAP_API Result<bool> same_bits(const TensorView& a, const TensorView& b,
                                     const Progress& progress = {});

}  // namespace weightmap
