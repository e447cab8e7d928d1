// A tensor as a DLPack capsule.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "python/src/tensor.hpp"

namespace weightmap::python {

// Returns DLPack's type of the elements. Raises BufferError if it has none.
nanobind::dlpack::dtype dlpack_type(DType dtype);

// Implements __dlpack__(**kwargs) of the array API. Raises BufferError if DLPack cannot describe
// the tensor, or the consumer does not know read-only memory.
nanobind::object to_dlpack(const Tensor& tensor, const nanobind::kwargs& kwargs);

}  // namespace weightmap::python
