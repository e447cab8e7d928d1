// A tensor as a DLPack capsule.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

// What DLPack calls the elements. Raises BufferError where it has no word for them.
nanobind::dlpack::dtype dlpack_type(DType dtype);

// What __dlpack__(**kwargs) of the array API answers. Raises BufferError where DLPack has no word
// for the tensor, or the consumer none for read-only memory.
nanobind::object to_dlpack(const Tensor& tensor, const nanobind::kwargs& kwargs);

}  // namespace weightmap::python
