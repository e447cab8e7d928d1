#include "runtime/base/catalog/catalog.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weightmap::catalog {

std::uint64_t hash_name(std::string_view name, std::uint64_t seed) noexcept {
  if (seed == 0) return XXH3_64bits(name.data(), name.size());
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

std::uint32_t Catalog::find(std::string_view wanted) const noexcept {
  const std::uint64_t hash = hash_name(wanted, seed_);
  const std::uint64_t fingerprint = hash >> 32;
  const std::uint64_t mask = slots_.size() - 1;
  for (std::uint64_t at = hash & mask;; at = (at + 1) & mask) {
    const std::uint64_t slot = slots_[at];
    if (slot == 0) return none;
    if (slot >> 32 != fingerprint) continue;
    const auto index = static_cast<std::uint32_t>(slot) - 1;
    if (name(entries_[index]) == wanted) return index;
  }
}

void Catalog::shift(std::uint64_t by, std::uint64_t size) noexcept {
  // Both stand in the block, which is this catalog's own.
  auto* const entries = const_cast<Entry*>(entries_.data());
  auto* const storages = const_cast<StorageEntry*>(storages_.data());
  for (std::size_t i = 0; i < placed_; ++i)
    if (storages[entries[i].storage].position <= size) entries[i].position += by;
  for (std::size_t i = 0; i < storages_.size(); ++i)
    if (storages[i].position <= size) storages[i].position += by;
}

}  // namespace weightmap::catalog
