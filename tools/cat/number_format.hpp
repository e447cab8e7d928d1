// Elements as words of one width, in the way of numpy: as few digits as tell the values apart, at
// most eight after the point, and powers of ten where the values differ by more than a thousand.
#pragma once

#include <string>
#include <vector>

#include "tools/cat/elements.hpp"

namespace weightmap::cli {

std::vector<std::string> words_of(const Elements& elements);

// The only element of a scalar, unpadded and with all its digits.
std::string scalar_word(const Elements& elements);

// An element for a JSON document: true, 12, 0.1, [1.0,2.0]; infinities and NaN as strings, since
// JSON has no numbers for them.
std::string json_word(const Elements& elements, std::size_t index);

}  // namespace weightmap::cli
