// The shapes of a tree's packed calls: an equal one that came recently is used again, since the
// layers of a model repeat theirs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/bytes/arena.hpp"
#include "runtime/value/tree.hpp"

namespace weightmap::value {

class PackedShapes {
 public:
  // The arena is that of the tree.
  explicit PackedShapes(bytes::Arena& arena) noexcept : arena_(&arena) {}

  // A copy of `shape` and of its dims in the arena, with its slot; nullptr if the budget is spent.
  const PackedShape* keep(PackedShape shape);

 private:
  const std::int64_t* keep_dims(std::span<const std::int64_t> dims, std::uint8_t slot);

  bytes::Arena* arena_;
  std::array<const PackedShape*, PackedShape::slots> kept_{};
  std::array<std::span<const std::int64_t>, PackedShape::slots> kept_dims_{};
};

}  // namespace weightmap::value
