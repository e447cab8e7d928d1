#include "runtime/value/packed_shapes.hpp"

#include <algorithm>

namespace weightmap::value {
namespace {

// The six highest bits choose among the slots.
constexpr unsigned slot_shift = 58;
static_assert(PackedShape::slots == std::uint64_t{1} << (64 - slot_shift));

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  return (hash ^ word) * 0x9E3779B97F4A7C15;
}

std::uint64_t hash_of(std::span<const std::int64_t> dims) noexcept {
  std::uint64_t hash = dims.size();
  for (const std::int64_t dim : dims) hash = mix(hash, static_cast<std::uint64_t>(dim));
  return hash;
}

// Besides `dims`, which may lie elsewhere, and the slot.
bool has_same_rest(const PackedShape& a, const PackedShape& b) noexcept {
  return a.header == b.header && a.numel == b.numel && a.storage_offset == b.storage_offset &&
         a.size_count == b.size_count && a.stride_count == b.stride_count;
}

}  // namespace

const PackedShape* PackedShapes::keep(PackedShape shape) {
  const std::span dims(shape.dims, std::size_t{shape.size_count} + shape.stride_count);
  const std::uint64_t dims_hash = hash_of(dims);
  std::uint64_t hash = mix(dims_hash, static_cast<std::uint64_t>(shape.numel));
  hash = mix(hash, static_cast<std::uint64_t>(shape.storage_offset));
  hash = mix(hash, shape.header->ids.type);
  shape.slot = static_cast<std::uint8_t>(hash >> slot_shift);
  const PackedShape*& kept = kept_[shape.slot];
  if (kept != nullptr && has_same_rest(*kept, shape) &&
      std::equal(dims.begin(), dims.end(), kept->dims))
    return kept;
  shape.dims = keep_dims(dims, dims_hash);
  auto* const copy = shape.dims ? arena_->allocate<PackedShape>() : nullptr;
  if (copy == nullptr) return nullptr;
  *copy = shape;
  return kept = copy;
}

const std::int64_t* PackedShapes::keep_dims(std::span<const std::int64_t> dims,
                                            std::uint64_t hash) {
  std::span<const std::int64_t>& kept = kept_dims_[hash >> slot_shift];
  if (kept.data() != nullptr && std::ranges::equal(kept, dims)) return kept.data();
  // At least one, so that no two shapes have the same address.
  auto* const copy = arena_->allocate<std::int64_t>(std::max<std::size_t>(dims.size(), 1));
  if (copy == nullptr) return nullptr;
  std::ranges::copy(dims, copy);
  kept = {copy, dims.size()};
  return copy;
}

}  // namespace weightmap::value
