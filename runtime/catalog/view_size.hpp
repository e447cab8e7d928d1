// How large a view of these sizes and strides is: what a parse computes, and what whoever gets a
// finished entry computes again before it believes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/bytes/checked.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::catalog {

struct ViewSize {
  std::uint64_t nbytes = 0;  // elements x element size
  std::uint64_t extent = 0;  // from the first to the last element that the strides reach
};

// `dims` are `rank` sizes, then as many strides, none of them negative. False if the numbers do not
// fit 63 bits. An empty view reaches nothing.
inline bool measure(DType dtype, const std::int64_t* dims, std::size_t rank,
                    ViewSize& size) noexcept {
  const std::int64_t* sizes = dims;
  const std::int64_t* strides = dims + rank;
  std::int64_t count = 1;
  std::int64_t last = 0;
  bool fits = true;
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t step = 0;
    empty |= sizes[i] == 0;
    fits &= bytes::checked_mul(count, sizes[i], &count);
    if (sizes[i] > 0)
      fits &= bytes::checked_mul(sizes[i] - 1, strides[i], &step) &&
              bytes::checked_add(last, step, &last);
  }
  size = {};
  if (empty) return true;
  const auto element = static_cast<std::int64_t>(element_size(dtype));
  std::int64_t bytes_reached = 0;
  fits = fits && bytes::checked_mul(count, element, &count) &&
         bytes::checked_add<std::int64_t>(last, 1, &last) &&
         bytes::checked_mul(last, element, &bytes_reached);
  size = {static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(bytes_reached)};
  return fits;
}

}  // namespace weightmap::catalog
