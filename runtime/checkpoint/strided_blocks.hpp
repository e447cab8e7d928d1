// The bytes that a strided view reaches, block by block, however far apart its elements lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap {

// The innermost dimensions of a view that lie together in a block, and how often they come, in
// row-major order.
class StridedBlocks {
 public:
  // Between two rows: to read less than that on costs no more than another read, and more of it
  // may be what somebody else is to read.
  static constexpr std::uint64_t most_gap = 16384;

  // Preconditions: the view is not empty, and its dtype is not blocked (bits() of it is not).
  explicit StridedBlocks(const TensorView& view);

  bool done() const noexcept { return index_.front() == shape_.front(); }
  // Preconditions of these: not done().
  std::uint64_t offset() const noexcept;  // from the view's first byte on
  std::uint64_t bytes() const noexcept;   // a MiB at most
  // The part of the view that lies in the block, given the block's bytes. Valid until advance().
  TensorView view_of(std::span<const std::byte> block);
  void advance() noexcept;

  // How many there are, all in all; the highest number if it does not fit.
  std::uint64_t count() const noexcept;

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

  // Of shape and strides in bytes, which the catalog has proven to fit 63 bits.
  std::uint64_t stride(std::size_t dim) const noexcept;
  // Elements of the split dimension that the block at hand has.
  std::int64_t rows() const noexcept;

  DType dtype_;
  unsigned flags_;
  // Of the view, behind a dimension of size 1.
  std::vector<std::int64_t> shape_{1};
  std::vector<std::int64_t> strides_{0};
  std::size_t split_;           // the dimension of which a block has several elements
  std::uint64_t inner_extent_;  // bytes that the dimensions within it reach
  std::int64_t most_rows_;
  std::vector<std::int64_t> index_;  // of the first element in the dimensions up to `split_`
  std::vector<std::int64_t> dims_;   // of the block at hand
};

}  // namespace weightmap
