// Small values of a pickle, and ways to them, as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap::python {

// Precondition: the value holds no other values (none, boolean, numbers, string, bytes).
nanobind::object to_python(const Value& value);

// A tuple of str and int.
nanobind::tuple to_python(std::span<const PathPart> path);

}  // namespace weightmap::python
