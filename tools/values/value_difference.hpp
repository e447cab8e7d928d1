// Where the values of two checkpoints differ: epochs, settings, whatever is no tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/value.hpp"

namespace weightmap::cli {

struct ValueDifference {
  std::string name;          // as `weightmap tree` labels what leads there, joined by dots
  std::optional<Value> old;  // nothing: it was added
  std::optional<Value> now;  // nothing: it was removed
};

struct ValueDifferences {
  static constexpr std::size_t most_listed = 1000;

  std::vector<ValueDifference> first;  // at most so many
  std::uint64_t changed = 0;
  std::uint64_t added = 0;
  std::uint64_t removed = 0;

  std::uint64_t all() const noexcept { return changed + added + removed; }
};

// Compares the value trees of two checkpoints: lists and tuples by index, dicts by key in any
// order, objects by type, arguments, items and state. A value of another kind differs (3 and 3.0),
// and a real number of other bits. Tensors are left out, but for the scales of quantized ones; one
// that has become another kind of value is a difference. Fails with
// limit_exceeded for values that are nested too deeply or lead to one another in too many ways.
Result<ValueDifferences> compare_values(const Checkpoint& old, const Checkpoint& now);

}  // namespace weightmap::cli
