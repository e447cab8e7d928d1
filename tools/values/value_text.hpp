// Prints values of a pickle as Python would, if that fits one line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "weightmap/value.hpp"

namespace weightmap::cli {

// Returns "17", "'adam'", "(0.9, 0.999)", "numpy.float64 0.25" for none, numbers, strings, bytes,
// dates, and containers with few of these; numbers and arrays of numpy. Strings and bytes are cut
// to `longest` bytes. Returns nullopt for anything longer than a line: larger containers, objects
// with a state.
std::optional<std::string> one_line(const Value& value, std::size_t longest = 80);

// Returns the head of a longer value: "dict, 3 items", "collections.deque, 2 elements".
std::string head_of(const Value& value);

// Returns a key of a dict, before the colon, cut to `longest` bytes.
std::string key_text(const Value& key, std::size_t longest);

}  // namespace weightmap::cli
