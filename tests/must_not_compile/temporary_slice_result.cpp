// The shape of a slice that is gone at the end of the line, reached through its Result.
#include "weightmap/tensor_view.hpp"

std::size_t first_dimension(const weightmap::TensorView& view) {
#ifdef WEIGHTMAP_MISUSE
  const auto shape = view.narrow(0, 0, 1)->shape();
#else
  const auto slice = view.narrow(0, 0, 1);
  const auto shape = slice->shape();
#endif
  return shape.size();
}
