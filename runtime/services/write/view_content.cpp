#include "runtime/services/write/view_content.hpp"

#include "mmap/guard.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {
namespace {

Result<void> take_elements(const TensorView& view, const RecordContent::Take& take) {
  Result<void> taken;
  TRY(for_each_piece(view, [&](std::span<const std::byte> piece) {
    taken = take(piece);
    return taken.has_value();
  }));
  TRY(taken);
  return mmap::Guard::check_read(view.stored_bytes());
}

}  // namespace

RecordContent content_of(const TensorView& view) {
  const bool is_lazy = view.is_conjugate() || view.is_negative();
  if (view.is_contiguous() && !view.is_foreign_byte_order() && !is_lazy)
    return RecordContent::bytes(view.bytes());
  return RecordContent::produced(
      view.nbytes(), [view](const RecordContent::Take& take) { return take_elements(view, take); });
}

}  // namespace weightmap
