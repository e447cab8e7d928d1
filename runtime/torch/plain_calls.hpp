// Calls of Python's and torch's own classes that no reader could make.
#pragma once

#include <string>

#include "weightmap/value.hpp"

namespace weightmap::torch {

// What is wrong with a call that fails whoever makes it: of a dtype, or of a class such as
// collections.OrderedDict with a number. Empty for every call that may succeed, or of which only
// Python could tell.
std::string impossible_call(const Value& object);

}  // namespace weightmap::torch
