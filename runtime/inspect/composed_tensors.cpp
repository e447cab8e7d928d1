#include "runtime/checkpoint/state.hpp"
#include "weightmap/composed_tensor.hpp"

namespace weightmap {

// A catalog that another process made is of a file that has none.
std::span<const ComposedTensor> composed_tensors(const Checkpoint& checkpoint) noexcept {
  const format::Parsed* const own = Checkpoint::Access::state(checkpoint).catalogs.own_if_any();
  return own != nullptr ? std::span<const ComposedTensor>(own->composed)
                        : std::span<const ComposedTensor>();
}

}  // namespace weightmap
