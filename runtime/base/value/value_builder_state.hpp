// The content of a ValueBuilder, for functions that take the finished tree.
#pragma once

#include <vector>

#include "runtime/base/value/builder.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

struct ValueBuilder::State {
  State();
  Value value(const value::Cell& cell) const noexcept { return {&builder.tree(), cell}; }
  // Valid until the next call.
  std::span<const value::Cell> cells(std::span<const Value> values);

  value::Builder builder;
  std::vector<value::Cell> scratch;
};

}  // namespace weightmap
