// A tensor as an array of numpy or torch.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

nanobind::object to_numpy(const Tensor& tensor);
nanobind::object to_torch(const Tensor& tensor);
// __array_interface__. Raises AttributeError where numpy itself has no word for the tensor.
nanobind::dict array_interface(const Tensor& tensor);

}  // namespace weightmap::python
