// Formats elements as words of one width, as numpy does: as few digits as distinguish the values,
// at most eight after the point, and powers of ten for values that differ by more than a thousand
// times.
#pragma once

#include <string>
#include <vector>

#include "tools/cat/elements.hpp"

namespace weightmap::cli {

std::vector<std::string> words_of(const Elements& elements);

// Returns the element of a scalar, unpadded and with all its digits.
std::string scalar_word(const Elements& elements);

// Returns an element for a JSON document: true, 12, 0.1, [1.0,2.0]; infinities and NaN as strings,
// since JSON lacks them.
std::string json_word(const Elements& elements, std::size_t index);

}  // namespace weightmap::cli
