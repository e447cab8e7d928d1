// Gathering a tensor whose bytes come block by block, so that no more memory is needed than one
// block, however far apart its elements lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap {

// The innermost dimensions of a view that lie together in a block, and how often they come.
class GatheredBlocks {
 public:
  // Precondition: the view is not empty.
  explicit GatheredBlocks(const TensorView& view);

  // Calls read(offset, bytes) for each block: it fills the bytes with those of the view from this
  // offset on. Puts the elements into `out`, row-major and in this machine's byte order.
  // Precondition: out.size() == view.nbytes().
  template <class Read>
  Result<void> gather(std::span<std::byte> out, const Read& read) {
    for (; !out.empty(); advance()) {
      const std::span<std::byte> block = std::span(block_).first(block_bytes());
      if (Result<void> ok = read(offset(), block); !ok) return ok;
      const TensorView part = view_of(block);
      if (Result<void> ok = part.gather(out.first(part.nbytes())); !ok) return ok;
      out = out.subspan(part.nbytes());
    }
    return {};
  }

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;
  // Between two rows: to read less than that on costs no more than another read, and more of it
  // may be what somebody else is to read.
  static constexpr std::uint64_t most_gap = 16384;

  // Of shape and strides in bytes, which the catalog has proven to fit 63 bits.
  std::uint64_t stride(std::size_t dim) const noexcept;
  // Elements of the split dimension that the block at hand has.
  std::int64_t rows() const noexcept;
  std::uint64_t block_bytes() const noexcept;
  std::uint64_t offset() const noexcept;
  TensorView view_of(std::span<const std::byte> block);
  void advance() noexcept;

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
  std::vector<std::byte> block_;
};

}  // namespace weightmap
