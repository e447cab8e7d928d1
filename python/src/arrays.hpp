// A tensor as an array of numpy or torch.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

nanobind::object to_numpy(const Tensor& tensor);
// `copy_on_write`: None for what the checkpoint was opened with, or what stands in its place.
nanobind::object to_torch(const Tensor& tensor, nanobind::handle copy_on_write);
// __array_interface__. Raises AttributeError where numpy itself has no word for the tensor.
nanobind::dict array_interface(const Tensor& tensor);

}  // namespace weightmap::python
