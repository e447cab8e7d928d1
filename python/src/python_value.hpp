// Small values of a pickle as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include "weightmap/value.hpp"

namespace weightmap::python {

// Precondition: the value holds no other values (none, boolean, numbers, string, bytes).
nanobind::object to_python(const Value& value);

}  // namespace weightmap::python
