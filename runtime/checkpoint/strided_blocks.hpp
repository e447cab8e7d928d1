// Divides the bytes that a strided view covers into blocks, however far apart its elements lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap {

// A block consists of a view's innermost, close dimensions. Blocks come in row-major order.
class StridedBlocks {
 public:
  // The largest gap between two rows of a block: reading a smaller gap costs no more than another
  // read, and a larger one may be what another process should read.
  static constexpr std::uint64_t most_gap = 16384;

  // Preconditions: the view is not empty, and its dtype is not blocked (its bits() are not).
  explicit StridedBlocks(const TensorView& view);

  bool done() const noexcept { return index_.front() == shape_.front(); }
  // Preconditions of these: not done().
  std::uint64_t offset() const noexcept;  // from the view's first byte
  std::uint64_t bytes() const noexcept;   // at most a MiB
  // Returns the part of the view in the block, given the block's bytes. Valid until advance().
  TensorView view_of(std::span<const std::byte> block);
  void advance() noexcept;

  // The number of blocks; saturates.
  std::uint64_t count() const noexcept;

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;

  // Computed from shape and strides in bytes, which the catalog has proven to fit 63 bits.
  std::uint64_t stride(std::size_t dim) const noexcept;
  // The current block's elements along the split dimension.
  std::int64_t rows() const noexcept;

  DType dtype_;
  unsigned flags_;
  // The view's, after a leading dimension of size 1.
  std::vector<std::int64_t> shape_{1};
  std::vector<std::int64_t> strides_{0};
  std::size_t split_;           // the outermost dimension within a block
  std::uint64_t inner_extent_;  // extent of the dimensions inside it, in bytes
  std::int64_t most_rows_;
  std::vector<std::int64_t> index_;  // of the first element in the dimensions up to `split_`
  std::vector<std::int64_t> dims_;   // of the current block
};

}  // namespace weightmap
