// Finds differences between two checkpoints' values: epochs, settings, all but tensors.
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
  std::string name;          // the labels of `weightmap tree` on the way there, joined by dots
  std::optional<Value> old;  // unset: it was added
  std::optional<Value> now;  // unset: it was removed
};

struct ValueDifferences {
  static constexpr std::size_t most_listed = 1000;

  std::vector<ValueDifference> first;  // up to a maximum
  std::uint64_t changed = 0;
  std::uint64_t added = 0;
  std::uint64_t removed = 0;

  std::uint64_t all() const noexcept { return changed + added + removed; }
};

// Compares the value trees of two checkpoints: lists and tuples by index, dicts by key in any
// order, objects by type, arguments, items and state. Values of different kinds differ (3 and 3.0),
// and so do real numbers with different bits. Tensors are left out, except the scales of quantized
// ones; one that has become another kind of value is a difference. Fails with limit_exceeded for
// values that are nested too deeply or refer to one another in too many ways.
Result<ValueDifferences> compare_values(const Checkpoint& old, const Checkpoint& now);

}  // namespace weightmap::cli
