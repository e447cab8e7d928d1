// The strides of a temporary slice die with it.
#include "weightmap/tensor_view.hpp"

std::size_t rank(const weightmap::TensorView& view) {
#ifdef WEIGHTMAP_MISUSE
  const auto strides = view.select(0, 0).value().strides();
#else
  const weightmap::TensorSlice slice = view.select(0, 0).value();
  const auto strides = slice.strides();
#endif
  return strides.size();
}
