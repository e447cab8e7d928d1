// The elements of a tensor by the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

// A memoryview with the shape, strides and format of the tensor. Raises BufferError where the
// protocol has no word for it. Tensor itself has no buffer: who takes one from whatever has one,
// as int() and torch.asarray() do, takes no notice of the format and gets wrong numbers.
nanobind::object buffer_of(const Tensor& tensor);

void bind_tensor_buffer(nanobind::module_& module);

}  // namespace weightmap::python
