// The buffer protocol of Tensor.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

// Slots for the type of Tensor.
extern PyType_Slot tensor_slots[];

}  // namespace weightmap::python
