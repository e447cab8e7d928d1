// A loop over the tensors of a checkpoint that is gone before the first of them.
#include "weightmap/checkpoint.hpp"

std::uint64_t elements() {
  std::uint64_t sum = 0;
#ifdef WEIGHTMAP_MISUSE
  for (const auto& tensor : weightmap::Checkpoint::open("model.pt")->tensors())
    sum += tensor.view.numel();
#else
  const auto checkpoint = weightmap::Checkpoint::open("model.pt");
  for (const auto& tensor : checkpoint->tensors()) sum += tensor.view.numel();
#endif
  return sum;
}
