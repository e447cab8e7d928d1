// The strides of a tensor whose elements lie row-major.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/checked.hpp"

namespace weightmap::bytes {

// Computes the strides in elements, as torch does: an empty dimension counts as one of size 1.
// Returns false if a stride, or the product of all sizes, does not fit; that stride is then 1,
// which makes no difference in an empty tensor. Precondition: both have the same length.
inline bool row_major_strides(std::span<const std::int64_t> sizes,
                              std::span<std::int64_t> strides) noexcept {
  std::int64_t stride = 1;
  bool fits = true;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    if (checked_mul(stride, std::max<std::int64_t>(1, sizes[i]), &stride)) continue;
    stride = 1;
    fits = false;
  }
  return fits;
}

}  // namespace weightmap::bytes
