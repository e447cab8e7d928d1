#include "runtime/checkpoint/state.hpp"
#include "runtime/os/write/in_place.hpp"
#include "weightmap/fill.hpp"

namespace weightmap {
namespace {

bool is_hole(const Checkpoint::State& state, const NamedStorage& storage) noexcept {
  if (storage.crc32 != 0 || storage.nbytes == 0) return false;
  return os::is_hole(state.sources[storage.source].file, storage.payload_offset, storage.nbytes);
}

}  // namespace

std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < checkpoint.storage_count(); ++i) {
    const NamedStorage storage = checkpoint.storage(i);
    if (reserved ? reserved->is_unwritten(storage.key) : is_hole(state, storage))
      found.push_back(i);
  }
  return found;
}

}  // namespace weightmap
