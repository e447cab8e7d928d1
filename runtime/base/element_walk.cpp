#include "runtime/base/element_walk.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

// Tensors whose strides repeat elements may have this many times the stored elements, plus a
// constant. docs/options.md has both.
constexpr std::uint64_t most_repeats = 1024;
constexpr std::uint64_t free_elements = std::uint64_t{1} << 24;

}  // namespace

ElementWalk::ElementWalk(const TensorView& view)
    : first_(view.stored_bytes().data()),
      element_(element_size(view.dtype())),
      swapped_(view.is_foreign_byte_order() ? swap_unit(view.dtype()) : 1) {
  for (std::size_t dim = 0; dim < view.rank(); ++dim) {
    const std::int64_t size = view.shape()[dim];
    const std::int64_t stride = view.strides()[dim];
    if (size == 1) continue;
    // The extents of both dimensions fit, and so does that of their product.
    if (!dims_.empty() && dims_.back().stride == size * stride)
      dims_.back() = {dims_.back().size * size, stride};
    else
      dims_.push_back({size, stride});
  }
  if (dims_.empty()) dims_.push_back({1, 1});
}

void ElementWalk::copy(std::span<std::byte> out) {
  auto left = static_cast<std::int64_t>(out.size() / element_);
  for (std::byte* to = out.data(); left > 0;) {
    const std::int64_t count = std::min(left, dims_.back().size - dims_.back().at);
    copy_along_last(count, to);
    advance(count);
    to += static_cast<std::size_t>(count) * element_;
    left -= count;
  }
  if (swapped_ == 1) return;
  for (std::size_t i = 0; i < out.size(); i += swapped_)
    std::reverse(out.data() + i, out.data() + i + swapped_);
}

void ElementWalk::copy_along_last(std::int64_t count, std::byte* out) const {
  const Dim& last = dims_.back();
  const auto element = static_cast<std::int64_t>(element_);
  const std::byte* from = first_ + (start_ + last.at * last.stride) * element;
  if (last.stride == 1) {
    std::memcpy(out, from, static_cast<std::size_t>(count * element));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * element, from + i * last.stride * element, element_);
}

void ElementWalk::advance(std::int64_t count) {
  std::size_t dim = dims_.size() - 1;
  dims_[dim].at += count;
  while (dims_[dim].at == dims_[dim].size) {
    dims_[dim].at = 0;
    if (dim-- == 0) return;
    start_ += dims_[dim].stride;
    if (++dims_[dim].at == dims_[dim].size) start_ -= dims_[dim].size * dims_[dim].stride;
  }
}

std::uint64_t stored_elements(const TensorView& view) noexcept {
  const Block block = block_of(view.dtype());
  return view.stored_bytes().size() / block.bytes * block.elements;
}

Result<void> check_repeats(const TensorView& view) {
  const std::uint64_t all = view.numel();
  const std::uint64_t stored = stored_elements(view);
  const bool is_bounded = all <= free_elements || (all - free_elements) / most_repeats <= stored;
  if (is_bounded || (view.flags() & TensorView::any_repeats) != 0) return {};
  return failure(ErrorCode::limit_exceeded,
                 "the tensor has " + std::to_string(all) + " elements in a storage of " +
                     std::to_string(stored) + ", and its strides may repeat each " +
                     std::to_string(most_repeats) +
                     " times; the option repeats=any (WEIGHTMAP_REPEATS) lifts this bound");
}

Result<void> for_each_piece(const TensorView& view, const PieceSink& sink,
                            std::uint64_t copied_bytes) {
  const bool as_mapped =
      view.data() != nullptr && view.is_contiguous() && !view.is_conjugate() && !view.is_negative();
  if (!as_mapped && is_blocked(view.dtype()) && !view.is_foreign_byte_order()) {
    TRY_ASSIGN(const TensorSlice bytes, view.bits());
    return for_each_piece(bytes, sink, copied_bytes);
  }
  if (as_mapped) {
    sink(view.bytes());
    return {};
  }
  const std::uint64_t all = view.nbytes();
  TRY(view.check_gather(all));
  if (all == 0) return {};
  TRY(check_repeats(view));
  ElementWalk walk(view);
  const std::size_t element = element_size(view.dtype());
  const std::uint64_t whole_elements = std::max<std::uint64_t>(copied_bytes / element, 1) * element;
  std::vector<std::byte> buffer(std::min(all, whole_elements));
  for (std::uint64_t done = 0; done < all; done += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(buffer.size(), all - done));
    walk.copy(buffer);
    if (!sink(buffer)) return {};
  }
  return {};
}

}  // namespace weightmap
