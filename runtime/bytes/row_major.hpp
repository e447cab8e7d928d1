// The strides of a tensor whose elements lie row-major.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/bytes/checked.hpp"

namespace weightmap::bytes {

// In elements, as torch has them: a dimension without elements counts as one of size 1. False if
// one of them, or the product of all sizes, does not fit; then that one is 1, which in an empty
// tensor no element tells from another. Precondition: both have the same length.
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
