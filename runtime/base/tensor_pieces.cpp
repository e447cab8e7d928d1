#include <algorithm>
#include <vector>

#include "runtime/base/element_walk.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {
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
