// composed_tensors() of a checkpoint, as dicts.
#pragma once

#include <nanobind/nanobind.h>

#include "weightmap/checkpoint.hpp"

namespace weightmap::python {

nanobind::list composed_fields(const Checkpoint& checkpoint);

}  // namespace weightmap::python
