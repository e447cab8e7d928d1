// What the pickle writer has still to do: tasks, of values that were begun. No recursion.
#pragma once

#include <cstdint>

#include "runtime/base/pickle/written_nodes.hpp"
#include "runtime/base/value/tree.hpp"

namespace weightmap::pickle {

// True if a pickler memoizes the value.
inline bool has_memo_id(const value::Cell& cell) noexcept {
  const Value::Kind kind = kind_of(cell);
  if (kind == Value::Kind::tuple) return cell.count > 0;
  return kind >= Value::Kind::string && kind != Value::Kind::persistent_id;
}

// True if a value is written at once, without a task.
inline bool is_simple(const value::Cell& cell) noexcept {
  using enum Value::Kind;
  switch (kind_of(cell)) {
    case tuple:
      return cell.count == 0;
    case list:
    case dict:
    case set:
    case frozen_set:
    case object:
    case persistent_id:
      return false;
    default:
      return true;
  }
}
inline bool has_simple_elements(const value::Cell& tuple_cell) noexcept {
  for (std::uint32_t i = 0; i < tuple_cell.count; ++i)
    if (!is_simple(tuple_element(tuple_cell, i))) return false;
  return true;
}
inline bool is_flat(const value::Cell& cell) noexcept {
  return is_simple(cell) || (kind_of(cell) == Value::Kind::tuple && has_simple_elements(cell));
}

// The remaining work on a value that was begun.
enum class Step : std::uint8_t {
  value,        // all of it
  tuple,        // its further elements, then TUPLE
  batches,      // further elements or items, then APPENDS or SETITEMS
  reduce,       // REDUCE or NEWOBJ
  build,        // BUILD
  persist,      // BINPERSID
  call_of_set,  // TUPLE1, REDUCE
  replaced,     // the same for a replacement, which is `cell`
};

struct Task {
  static constexpr WrittenNodes::Number unshared = 0xFFFFFFFF;
  Step step;
  bool is_pairs = false;  // batches: of a dict's items
  bool is_exact = false;  // batches: of a list or dict, not of an object
  bool is_in_batch = false;
  bool is_single = false;  // the batch: has no mark
  bool is_full = false;    // the batch has the maximum length
  WrittenNodes::Number node = unshared;
  const value::Tree* tree = nullptr;
  value::Cell cell{};
  value::CellCursor cursor{};
  std::uint64_t left = 0;      // cells to come, after the current batch if there is one
  std::uint64_t in_batch = 0;  // cells to come in the current batch

  std::uint64_t cells(std::uint64_t values) const noexcept {
    return is_pairs ? 2 * values : values;
  }
};

}  // namespace weightmap::pickle
