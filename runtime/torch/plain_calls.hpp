// Recognises calls of Python's and torch's own classes that must fail.
#pragma once

#include <string>

#include "weightmap/value.hpp"

namespace weightmap::torch {

// Describes why a call must fail for every reader, such as a call of a dtype, or of
// collections.OrderedDict with a number. Empty if it may succeed, or only Python can judge.
std::string impossible_call(const Value& object);

}  // namespace weightmap::torch
