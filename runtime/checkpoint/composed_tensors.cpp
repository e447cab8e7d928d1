#include "runtime/checkpoint/state.hpp"
#include "weightmap/composed_tensor.hpp"

namespace weightmap {

std::span<const ComposedTensor> composed_tensors(const Checkpoint& checkpoint) noexcept {
  return Checkpoint::Access::state(checkpoint).content().composed;
}

}  // namespace weightmap
