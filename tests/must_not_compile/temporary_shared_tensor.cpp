// The view of a shared tensor that is gone at the end of the line, and its checkpoint with it.
#include "weightmap/shared_tensor.hpp"

std::size_t rank_of(const std::shared_ptr<const weightmap::Checkpoint>& checkpoint) {
#ifdef WEIGHTMAP_MISUSE
  const weightmap::TensorView view = *weightmap::SharedTensor::get(checkpoint, "w").value();
#else
  const weightmap::SharedTensor tensor = weightmap::SharedTensor::get(checkpoint, "w").value();
  const weightmap::TensorView view = *tensor;
#endif
  return view.rank();
}
