// A view that borrows the shape of a slice which is gone at the end of the line.
#include "weightmap/tensor_view.hpp"

std::uint64_t elements(const weightmap::TensorView& view) {
#ifdef WEIGHTMAP_MISUSE
  const weightmap::TensorView row = view.select(0, 0).value();
#else
  const weightmap::TensorSlice row = view.select(0, 0).value();
#endif
  return row.numel();
}
