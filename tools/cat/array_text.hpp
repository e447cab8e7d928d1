// Formats words in nested brackets, broken into lines, as numpy does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weightmap::cli {

// Elements at each end of a shortened dimension.
inline constexpr std::int64_t edge_items = 3;
// Arrays of more elements than this are shortened.
inline constexpr std::uint64_t summary_threshold = 1000;

// Returns the shown indices of a dimension of `size`: all of them, or the first and last three.
std::vector<std::int64_t> shown_indices(std::int64_t size, bool shortened);

// `words` has one word for each shown element, row-major. `shape` has dimensions, none of them
// empty.
std::string array_text(std::span<const std::int64_t> shape, bool shortened,
                       const std::vector<std::string>& words);

}  // namespace weightmap::cli
