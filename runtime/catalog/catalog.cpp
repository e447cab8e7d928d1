#include "runtime/catalog/catalog.hpp"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weightmap::catalog {

std::uint64_t hash_name(std::string_view name, std::uint64_t seed) noexcept {
  if (seed == 0) return XXH3_64bits(name.data(), name.size());
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

Catalog::Catalog(bytes::Buffer block) noexcept
    : Catalog(*reinterpret_cast<const Header*>(block.data()), block.span()) {
  owner_ = std::move(block);
}

Catalog::Catalog(const Header& header, std::span<const std::byte> block) noexcept
    : block_(block.first(header.block_bytes)),
      slot_mask_(header.slots - 1),
      seed_(header.seed),
      tensor_bytes_(header.tensor_bytes) {
  const std::byte* base = block.data();
  const Sections at(header);
  entries_ = {reinterpret_cast<const Entry*>(base + at.entries), header.tensors};
  storages_ = {reinterpret_cast<const StorageEntry*>(base + at.storages), header.storages};
  near_ = reinterpret_cast<const std::int64_t*>(base + at.near);
  dims_ = reinterpret_cast<const std::int64_t*>(base + at.dims);
  slots_ = reinterpret_cast<const std::uint64_t*>(base + at.slots);
  locations_ = reinterpret_cast<const Text*>(base + at.locations);
  path_parts_ = reinterpret_cast<const std::uint32_t*>(base + at.path_parts);
  strings_ = reinterpret_cast<const char*>(base + at.strings);
}

std::uint32_t Catalog::find(std::string_view wanted) const noexcept {
  const std::uint64_t hash = hash_name(wanted, seed_);
  const std::uint64_t fingerprint = hash >> 32;
  for (std::uint64_t at = hash & slot_mask_;; at = (at + 1) & slot_mask_) {
    const std::uint64_t slot = slots_[at];
    if (slot == 0) return none;
    if (slot >> 32 != fingerprint) continue;
    const auto index = static_cast<std::uint32_t>(slot) - 1;
    if (name(entries_[index]) == wanted) return index;
  }
}

}  // namespace weightmap::catalog
