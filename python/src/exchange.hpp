// A tensor in the words of others: the buffer protocol, DLPack, numpy, torch.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

// Slots for the type of Tensor.
extern PyType_Slot tensor_slots[];

nanobind::object to_numpy(const Tensor& tensor);
nanobind::object to_torch(const Tensor& tensor);
nanobind::dict array_interface(const Tensor& tensor);
nanobind::object to_dlpack(const Tensor& tensor, const nanobind::kwargs& kwargs);

}  // namespace weightmap::python
