// Creates nodes of a tree in its arena, for the pickle machine and Builder.
//
// The functions check only the arena's budget, and return false or nullptr once it is spent. The
// caller computes depths with depth_of() and bounds them. They are inline since the machine runs
// them for each node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "runtime/base/value/tree.hpp"

namespace weightmap::value {

// The depth of a packed call: object > arguments > persistent id > id tuple.
constexpr std::uint32_t packed_depth = 4;

// Returns the nesting below and including this value; 0 for a value without contents.
inline std::uint32_t depth_of(const Cell& cell) noexcept {
  using enum Value::Kind;
  if (cell.part != whole_value) return packed_depth;
  switch (kind_of(cell)) {
    case tuple:
    case persistent_id:
      return cell.depth;
    case list:
    case dict:
    case set:
    case frozen_set:
      return target_of<const Sequence>(cell)->depth;
    case object:
      return target_of<const Object>(cell)->depth;
    default:
      return 0;
  }
}

// Returns the depth of the deepest of `count` cells.
inline std::uint32_t deepest(const Cell* cells, std::uint32_t count) noexcept {
  std::uint32_t depth = 0;
  for (std::uint32_t i = 0; i < count; ++i) depth = std::max(depth, depth_of(cells[i]));
  return depth;
}

// Makes a tuple of copies of the cells. Precondition: count > 0.
inline bool make_tuple(bytes::Arena& arena, const Cell* first, std::uint32_t count,
                       std::uint32_t depth, Cell& made) {
  Cell* cells = arena.allocate<Cell>(count);
  if (cells == nullptr) return false;
  std::copy_n(first, count, cells);
  made = make_cell(Value::Kind::tuple, cells, count);
  made.depth = static_cast<std::uint16_t>(depth);
  return true;
}

inline bool make_persistent_id(bytes::Arena& arena, const Cell& id, std::uint32_t depth,
                               Cell& made) {
  Cell* kept = arena.allocate<Cell>();
  if (kept == nullptr) return false;
  *kept = id;
  made = make_cell(Value::Kind::persistent_id, kept);
  made.depth = static_cast<std::uint16_t>(depth);
  return true;
}

// Makes an object without elements, items and state.
inline Object* make_object(bytes::Arena& arena, const Cell& callable, const Cell& arguments,
                           bool is_new_object, std::uint32_t depth, std::uint32_t position) {
  auto* made = arena.allocate<Object>();
  if (made == nullptr) return nullptr;
  *made = Object{};
  made->callable = callable;
  made->arguments = arguments;
  made->is_new_object = is_new_object;
  made->position = position;
  made->depth = depth;
  return made;
}

inline Global* make_global(bytes::Arena& arena, std::string_view module, std::string_view name,
                           std::uint32_t position) {
  auto* made = arena.allocate<Global>();
  // The tree lists it in a vector whose capacity may be twice its size.
  if (made == nullptr || !arena.charge(2 * sizeof(made))) return nullptr;
  *made = Global{module, name, position};
  return made;
}

inline Sequence* make_sequence(bytes::Arena& arena) {
  auto* sequence = arena.allocate<Sequence>();
  if (sequence != nullptr) *sequence = Sequence{};
  return sequence;
}

// Adds copies of the cells; `depth` is one more than the depth of the deepest.
inline bool extend(bytes::Arena& arena, Sequence& sequence, const Cell* first, std::uint32_t count,
                   std::uint32_t depth, std::uint32_t position) {
  if (count == 0) return true;
  static_assert(sizeof(Chunk) == sizeof(Cell));
  Cell* memory = arena.allocate<Cell>(std::size_t{count} + 1);
  if (memory == nullptr) return false;
  auto* chunk = reinterpret_cast<Chunk*>(memory);
  *chunk = Chunk{nullptr, count};
  std::copy_n(first, count, chunk->cells());
  (sequence.last ? sequence.last->next : sequence.first) = chunk;
  sequence.last = chunk;
  sequence.count += count;
  sequence.depth = std::max(sequence.depth, depth);
  sequence.changed_at = position;
  return true;
}

}  // namespace weightmap::value
