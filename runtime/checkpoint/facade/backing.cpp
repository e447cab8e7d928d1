#include "weightmap/backing.hpp"

#include "runtime/checkpoint/copies.hpp"
#include "runtime/checkpoint/lookup.hpp"
#include "runtime/checkpoint/refused_write.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/checkpoint/writable.hpp"

namespace weightmap {

Backing::Backing(const Checkpoint& checkpoint) noexcept
    : state_(&Checkpoint::Access::state(checkpoint)) {}

std::size_t Backing::storage_count() const noexcept { return state_->catalog().storages().size(); }
NamedStorage Backing::storage(std::size_t index) const noexcept {
  return storage_at(*state_, index);
}
std::vector<std::filesystem::path> Backing::opened_paths() const {
  std::vector<std::filesystem::path> paths;
  for (const GivenPath& given : state_->given)
    paths.push_back(state_->hub ? std::filesystem::path(given.as_given) : given.path);
  return paths;
}

Result<std::span<std::byte>> Backing::copy_on_write() const {
  return weightmap::copy_on_write(*state_);
}
Result<std::span<std::byte>> Backing::lend(std::uint64_t storage_bytes,
                                           std::optional<CopyOnWrite> how) const {
  return weightmap::lend(*state_, storage_bytes, how);
}
void Backing::tell_refused_writes() const { weightmap::tell_refused_writes(*state_); }

Result<void> Backing::copy_bytes(const TensorView& view, std::span<std::byte> out) const {
  return weightmap::copy_bytes(*state_, view, out);
}

}  // namespace weightmap
