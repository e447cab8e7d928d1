#include "runtime/checkpoint/state.hpp"
#include "runtime/system/write/in_place.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint_writer.hpp"

namespace weightmap {
namespace {

os::Holes holes_in(const Checkpoint::State& state, const NamedStorage& storage) noexcept {
  if (storage.crc32 != 0) return {};
  return os::find_holes(state.sources[storage.source].file, storage.payload_offset, storage.nbytes);
}

}  // namespace

std::vector<std::size_t> unwritten_storages(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const std::optional<ReservedStorages>& reserved = checkpoint.info().reserved;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i) {
    const NamedStorage storage = Backing(checkpoint).storage(i);
    if (reserved ? reserved->is_unwritten(storage.key) : holes_in(state, storage).is_unwritten)
      found.push_back(i);
  }
  return found;
}

std::uint64_t hole_bytes(const Checkpoint& checkpoint) {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i)
    bytes += holes_in(state, Backing(checkpoint).storage(i)).bytes;
  return bytes;
}

}  // namespace weightmap
