// Values of a pickle in words: as Python would print them, where that fits one line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "weightmap/value.hpp"

namespace weightmap::cli {

// "17", "'adam'", "(0.9, 0.999)", "numpy.float64 0.25": none, numbers, strings, bytes, dates, and
// what is made of few of these; numbers and arrays of numpy. Strings and bytes are cut to
// `longest` bytes.
// nullopt for what takes more than a line: containers with more in them, objects with a state.
std::optional<std::string> one_line(const Value& value, std::size_t longest = 80);

// The head of what takes more than a line: "dict, 3 items", "collections.deque, 2 elements".
std::string head_of(const Value& value);

// A key of a dict, before the colon, cut to `longest` bytes.
std::string key_text(const Value& key, std::size_t longest);

}  // namespace weightmap::cli
