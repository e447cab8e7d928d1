// The elements of two tensors of one shape, in pieces of the same elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/try.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::inspect {

// Calls sink(a, b), which answers false to stop early, with the bytes of consecutive elements,
// row-major, in this machine's byte order. Straight from the mappings, in one piece, where both lie
// there like that; else of what does not, copies of at most `copied_bytes`. Neither has a lazy bit.
template <class Sink>
class PiecePairs {
 public:
  PiecePairs(Sink& sink, std::uint64_t copied_bytes) : sink_(sink), copied_bytes_(copied_bytes) {}

  // At most max_slice_rank deep: what is not narrowed at once loses a dimension.
  Result<void> walk(const TensorView& a, const TensorView& b) {
    if (a.numel() == 0 || stopped_) return {};
    const std::uint64_t bytes = std::max(a.nbytes(), b.nbytes());
    if ((is_mapped(a) && is_mapped(b)) || bytes <= copied_bytes_ ||
        a.rank() > TensorView::max_slice_rank)
      return give(a, b);
    const std::int64_t rows = a.shape()[0];
    const std::uint64_t row_bytes = bytes / static_cast<std::uint64_t>(rows);
    if (row_bytes > copied_bytes_) return walk_rows(a, b);
    const auto step = static_cast<std::int64_t>(copied_bytes_ / row_bytes);
    for (std::int64_t row = 0; row < rows && !stopped_; row += std::min(step, rows - row)) {
      const std::int64_t some = std::min(step, rows - row);
      TRY_ASSIGN(const TensorSlice part_a, a.narrow(0, row, some));
      TRY_ASSIGN(const TensorSlice part_b, b.narrow(0, row, some));
      TRY(give(part_a, part_b));
    }
    return {};
  }

 private:
  static bool is_mapped(const TensorView& view) noexcept {
    return view.data() != nullptr && view.is_contiguous();
  }

  Result<void> walk_rows(const TensorView& a, const TensorView& b) {
    for (std::int64_t row = 0; row < a.shape()[0] && !stopped_; ++row) {
      TRY_ASSIGN(const TensorSlice part_a, a.select(0, row));
      TRY_ASSIGN(const TensorSlice part_b, b.select(0, row));
      TRY(walk(part_a, part_b));
    }
    return {};
  }

  static Result<std::span<const std::byte>> bytes_of(const TensorView& view,
                                                     std::vector<std::byte>& copy) {
    if (is_mapped(view)) return view.bytes();
    copy.resize(view.nbytes());
    TRY(view.gather(copy));
    return std::span<const std::byte>(copy);
  }

  Result<void> give(const TensorView& a, const TensorView& b) {
    TRY_ASSIGN(const std::span<const std::byte> bytes_a, bytes_of(a, copy_a_));
    TRY_ASSIGN(const std::span<const std::byte> bytes_b, bytes_of(b, copy_b_));
    stopped_ = !sink_(bytes_a, bytes_b);
    return {};
  }

  Sink& sink_;
  const std::uint64_t copied_bytes_;
  std::vector<std::byte> copy_a_;
  std::vector<std::byte> copy_b_;
  bool stopped_ = false;
};

}  // namespace weightmap::inspect
