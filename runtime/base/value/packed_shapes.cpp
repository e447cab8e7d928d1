#include "runtime/base/value/packed_shapes.hpp"

#include <algorithm>

namespace weightmap::value {
namespace {

// The six highest bits choose among the slots.
constexpr unsigned slot_shift = 58;
static_assert(PackedShape::slots == std::uint64_t{1} << (64 - slot_shift));

// A sum of independent products. Its high bits choose among the slots. Shapes that are made to
// collide are only stored more than once.
class Hash {
 public:
  Hash& add(std::int64_t value) noexcept {
    sum_ += static_cast<std::uint64_t>(value) * factor_;
    factor_ += 0xD6E8FEB86659FD92;
    return *this;
  }
  std::uint8_t slot() const noexcept { return static_cast<std::uint8_t>(sum_ >> slot_shift); }

 private:
  std::uint64_t sum_ = 0;
  std::uint64_t factor_ = 0x9E3779B97F4A7C15;
};

// Compares everything except `dims`, which may be stored elsewhere, and the slot.
bool has_same_rest(const PackedShape& a, const PackedShape& b) noexcept {
  return a.header == b.header && a.numel == b.numel && a.storage_offset == b.storage_offset &&
         a.size_count == b.size_count && a.stride_count == b.stride_count;
}

}  // namespace

const PackedShape* PackedShapes::keep(PackedShape shape) {
  const std::span dims(shape.dims, std::size_t{shape.size_count} + shape.stride_count);
  Hash hash;
  for (const std::int64_t dim : dims) hash.add(dim);
  const std::uint8_t dims_slot = hash.slot();
  shape.slot = hash.add(shape.numel).add(shape.storage_offset).add(shape.header->ids.type).slot();
  const PackedShape*& kept = kept_[shape.slot];
  if (kept != nullptr && has_same_rest(*kept, shape) &&
      std::equal(dims.begin(), dims.end(), kept->dims))
    return kept;
  shape.dims = keep_dims(dims, dims_slot);
  auto* const copy = shape.dims ? arena_->allocate<PackedShape>() : nullptr;
  if (copy == nullptr) return nullptr;
  *copy = shape;
  return kept = copy;
}

const std::int64_t* PackedShapes::keep_dims(std::span<const std::int64_t> dims, std::uint8_t slot) {
  std::span<const std::int64_t>& kept = kept_dims_[slot];
  if (kept.data() != nullptr && std::ranges::equal(kept, dims)) return kept.data();
  // At least one element, so that no two shapes have the same address.
  auto* const copy = arena_->allocate<std::int64_t>(std::max<std::size_t>(dims.size(), 1));
  if (copy == nullptr) return nullptr;
  std::ranges::copy(dims, copy);
  kept = {copy, dims.size()};
  return copy;
}

}  // namespace weightmap::value
