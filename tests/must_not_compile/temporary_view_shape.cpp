// A slice carries its own shape, so the shape of a temporary slice dies with it.
#include "weightmap/tensor_view.hpp"

std::size_t first_dimension(const weightmap::TensorView& view) {
#ifdef WEIGHTMAP_MISUSE
  const auto shape = view.narrow(0, 0, 1).value().shape();
#else
  const weightmap::TensorSlice slice = view.narrow(0, 0, 1).value();
  const auto shape = slice.shape();
#endif
  return shape.size();
}
