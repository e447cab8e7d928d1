// The shapes of a tree's packed calls. Recent ones are shared, since a model's layers repeat
// theirs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/bytes/arena.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::value {

class PackedShapes {
 public:
  // `arena` belongs to the tree.
  explicit PackedShapes(bytes::Arena& arena) noexcept : arena_(&arena) {}

  // Returns a copy of `shape` and its dims in the arena, with its slot; nullptr beyond the budget.
  const PackedShape* keep(PackedShape shape);

 private:
  const std::int64_t* keep_dims(std::span<const std::int64_t> dims, std::uint8_t slot);

  bytes::Arena* arena_;
  std::array<const PackedShape*, PackedShape::slots> kept_{};
  std::array<std::span<const std::int64_t>, PackedShape::slots> kept_dims_{};
};

}  // namespace weightmap::value
