// "0:10,3,:,-1": one item a dimension, each an index or a start:stop range as Python counts them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {

struct SliceItem {
  std::optional<std::int64_t> index;  // set: this one, and the dimension goes
  std::optional<std::int64_t> start;  // otherwise a range; unset ends mean all the way
  std::optional<std::int64_t> stop;
};

// nullopt if `text` is not of this form.
std::optional<std::vector<SliceItem>> parse_slice(const std::string& text);

// Ranges are cut to the dimension, as in Python; an index outside it is an error.
Result<TensorSlice> apply_slice(const TensorView& view, const std::vector<SliceItem>& items);

}  // namespace weightmap::cli
