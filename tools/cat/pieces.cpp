#include "tools/cat/pieces.hpp"

#include <algorithm>
#include <vector>

namespace weightmap::cli {
namespace {

constexpr std::uint64_t piece_bytes = std::uint64_t{16} << 20;

class Gatherer {
 public:
  explicit Gatherer(const ByteSink& sink) : sink_(sink) {}

  // At most max_slice_rank deep: what is not narrowed at once loses a dimension.
  Result<void> walk(const TensorView& view) {
    if (view.numel() == 0 || stopped_) return {};
    const bool whole = view.nbytes() <= piece_bytes || view.rank() > TensorView::max_slice_rank;
    if (whole) return copy(view);
    const std::int64_t rows = view.shape()[0];
    const std::uint64_t row_bytes = view.nbytes() / static_cast<std::uint64_t>(rows);
    if (row_bytes > piece_bytes) return walk_rows(view, rows);
    const auto step = static_cast<std::int64_t>(piece_bytes / row_bytes);
    for (std::int64_t row = 0; row < rows && !stopped_; row += std::min(step, rows - row)) {
      const Result<TensorSlice> part = view.narrow(0, row, std::min(step, rows - row));
      if (!part) return tl::unexpected<Error>(part.error());
      if (Result<void> ok = copy(*part); !ok) return ok;
    }
    return {};
  }

 private:
  Result<void> walk_rows(const TensorView& view, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows && !stopped_; ++row) {
      const Result<TensorSlice> part = view.select(0, row);
      if (!part) return tl::unexpected<Error>(part.error());
      if (Result<void> ok = walk(*part); !ok) return ok;
    }
    return {};
  }

  Result<void> copy(const TensorView& view) {
    buffer_.resize(view.nbytes());
    if (Result<void> ok = view.gather(buffer_); !ok) return ok;
    stopped_ = !sink_(buffer_);
    return {};
  }

  const ByteSink& sink_;
  std::vector<std::byte> buffer_;
  bool stopped_ = false;
};

}  // namespace

Result<void> for_each_piece(const TensorView& view, const ByteSink& sink) {
  const bool as_mapped =
      view.data() != nullptr && view.is_contiguous() && !view.is_conjugate() && !view.is_negative();
  if (!as_mapped) return Gatherer(sink).walk(view);
  sink(view.bytes());
  return {};
}

}  // namespace weightmap::cli
