// Parses slices, "0:10,3,:,-1": one item per dimension, an index or a Python start:stop range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

struct SliceItem {
  std::optional<std::int64_t> index;  // selects one index and removes the dimension
  std::optional<std::int64_t> start;  // otherwise a range; an unset end is that of the dimension
  std::optional<std::int64_t> stop;
};

// Returns nullopt for any other form.
std::optional<std::vector<SliceItem>> parse_slice(const std::string& text);

// Clips ranges to the dimension, as Python does; an index out of range is an error.
Result<TensorSlice> apply_slice(const TensorView& view, const std::vector<SliceItem>& items);

}  // namespace weightmap::cli
