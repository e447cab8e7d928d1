#include "weightmap/tensor_pieces.hpp"

#include <algorithm>
#include <vector>

#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

class Gatherer {
 public:
  Gatherer(const PieceSink& sink, std::uint64_t piece_bytes)
      : sink_(sink), piece_bytes_(piece_bytes) {}

  // At most max_slice_rank deep: what is not narrowed at once loses a dimension.
  Result<void> walk(const TensorView& view) {
    if (view.numel() == 0 || stopped_) return {};
    const bool whole = view.nbytes() <= piece_bytes_ || view.rank() > TensorView::max_slice_rank ||
                       is_blocked(view.dtype());  // which is refused
    if (whole) return copy(view);
    const std::int64_t rows = view.shape()[0];
    const std::uint64_t row_bytes = view.nbytes() / static_cast<std::uint64_t>(rows);
    if (row_bytes > piece_bytes_) return walk_rows(view, rows);
    const auto step = static_cast<std::int64_t>(piece_bytes_ / row_bytes);
    for (std::int64_t row = 0; row < rows && !stopped_; row += std::min(step, rows - row)) {
      TRY_ASSIGN(const TensorSlice part, view.narrow(0, row, std::min(step, rows - row)));
      TRY(copy(part));
    }
    return {};
  }

 private:
  Result<void> walk_rows(const TensorView& view, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows && !stopped_; ++row) {
      TRY_ASSIGN(const TensorSlice part, view.select(0, row));
      TRY(walk(part));
    }
    return {};
  }

  Result<void> copy(const TensorView& view) {
    buffer_.resize(view.nbytes());
    TRY(view.gather(buffer_));
    stopped_ = !sink_(buffer_);
    return {};
  }

  const PieceSink& sink_;
  const std::uint64_t piece_bytes_;
  std::vector<std::byte> buffer_;
  bool stopped_ = false;
};

}  // namespace

Result<void> for_each_piece(const TensorView& view, const PieceSink& sink,
                            std::uint64_t copied_bytes) {
  const bool as_mapped =
      view.data() != nullptr && view.is_contiguous() && !view.is_conjugate() && !view.is_negative();
  if (!as_mapped && is_blocked(view.dtype()) && !view.is_foreign_byte_order()) {
    TRY_ASSIGN(const TensorSlice bytes, view.bits());
    return for_each_piece(bytes, sink, copied_bytes);
  }
  if (!as_mapped) return Gatherer(sink, copied_bytes).walk(view);
  sink(view.bytes());
  return {};
}

}  // namespace weightmap
