// The size of a view with these sizes and strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/bytes/checked.hpp"
#include "weightmap/dtype.hpp"

namespace weightmap::catalog {

struct ViewSize {
  std::uint64_t nbytes = 0;  // of the elements or their blocks
  std::uint64_t extent = 0;  // from the first to the last element that the strides reach
};

// True if all rows of a blocked dtype are whole blocks, one after another.
inline bool has_whole_blocks(DType dtype, const std::int64_t* dims, std::size_t rank) noexcept {
  const std::int64_t block = block_of(dtype).elements;
  if (rank == 0 || dims[rank - 1] % block != 0 || dims[2 * rank - 1] != 1) return false;
  for (std::size_t i = rank; i + 1 < 2 * rank; ++i)
    if (dims[i] % block != 0) return false;
  return true;
}

// `dims` are `rank` sizes, then as many strides, none of them negative. Returns false if the
// numbers do not fit 63 bits, or divide blocks. The extent of an empty view is 0.
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
  fits = fits && bytes::checked_add<std::int64_t>(last, 1, &last);
  const Block block = block_of(dtype);
  if (is_blocked(dtype)) {
    if (!has_whole_blocks(dtype, dims, rank)) return false;
    count /= block.elements;
    last /= block.elements;
  }
  std::int64_t bytes_reached = 0;
  fits = fits && bytes::checked_mul<std::int64_t>(count, block.bytes, &count) &&
         bytes::checked_mul<std::int64_t>(last, block.bytes, &bytes_reached);
  size = {static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(bytes_reached)};
  return fits;
}

}  // namespace weightmap::catalog
