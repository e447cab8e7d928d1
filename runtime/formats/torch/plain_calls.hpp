// Recognises calls of Python's and torch's own classes: those that must fail, and containers.
#pragma once

#include <optional>
#include <string>

#include "weightmap/value.hpp"

namespace weightmap::torch {

// Describes why a call must fail for every reader, such as a call of a dtype, or of
// collections.OrderedDict with a number. Empty if it may succeed, or only Python can judge.
std::string impossible_call(const Value& object);

// Returns what a set, frozenset, deque or tuple is called with, whose elements are its own; it has
// not changed since the call. nullopt for all else.
std::optional<Value> contents_of_call(const Value& object) noexcept;

}  // namespace weightmap::torch
