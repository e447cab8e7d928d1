#include "runtime/checkpoint/strided_blocks.hpp"

#include <algorithm>
#include <limits>

#include "runtime/base/bytes/checked.hpp"

namespace weightmap {

StridedBlocks::StridedBlocks(const TensorView& view)
    : dtype_(view.dtype()),
      flags_(view.is_foreign_byte_order() ? unsigned{TensorView::foreign_order} : 0),
      split_(view.rank()),
      inner_extent_(element_size(view.dtype())) {
  shape_.insert(shape_.end(), view.shape().begin(), view.shape().end());
  strides_.insert(strides_.end(), view.strides().begin(), view.strides().end());
  const auto rows_that_fit = [&]() -> std::int64_t {
    if (stride(split_) == 0) return shape_[split_];
    if (stride(split_) > inner_extent_ + most_gap) return 1;
    const std::uint64_t more = (most_bytes - inner_extent_) / stride(split_);
    return more < static_cast<std::uint64_t>(shape_[split_]) ? static_cast<std::int64_t>(more) + 1
                                                             : shape_[split_];
  };
  for (; split_ > 0 && rows_that_fit() == shape_[split_]; --split_)
    inner_extent_ += static_cast<std::uint64_t>(shape_[split_] - 1) * stride(split_);
  most_rows_ = rows_that_fit();
  index_.resize(split_ + 1);
}

std::uint64_t StridedBlocks::stride(std::size_t dim) const noexcept {
  // The stride of a single element is never used, and is unbounded.
  return shape_[dim] == 1 ? 0 : static_cast<std::uint64_t>(strides_[dim]) * element_size(dtype_);
}

std::int64_t StridedBlocks::rows() const noexcept {
  return std::min(most_rows_, shape_[split_] - index_[split_]);
}

std::uint64_t StridedBlocks::bytes() const noexcept {
  return inner_extent_ + static_cast<std::uint64_t>(rows() - 1) * stride(split_);
}

std::uint64_t StridedBlocks::offset() const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t dim = 0; dim <= split_; ++dim)
    bytes += static_cast<std::uint64_t>(index_[dim]) * stride(dim);
  return bytes;
}

TensorView StridedBlocks::view_of(std::span<const std::byte> block) {
  dims_.assign(shape_.begin() + static_cast<std::ptrdiff_t>(split_), shape_.end());
  dims_.front() = rows();
  dims_.insert(dims_.end(), strides_.begin() + static_cast<std::ptrdiff_t>(split_), strides_.end());
  return {dtype_, shape_.size() - split_, dims_.data(), block.data(), block.size(), flags_};
}

std::uint64_t StridedBlocks::count() const noexcept {
  auto blocks = static_cast<std::uint64_t>((shape_[split_] - 1) / most_rows_ + 1);
  for (std::size_t dim = 0; dim < split_; ++dim)
    if (!bytes::checked_mul(blocks, static_cast<std::uint64_t>(shape_[dim]), &blocks))
      return std::numeric_limits<std::uint64_t>::max();
  return blocks;
}

void StridedBlocks::advance() noexcept {
  index_[split_] += rows();
  for (std::size_t dim = split_; dim > 0 && index_[dim] == shape_[dim]; --dim) {
    index_[dim] = 0;
    ++index_[dim - 1];
  }
}

}  // namespace weightmap
