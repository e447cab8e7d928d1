// weightmap._core.CudaUploader and what it gives, on which weightmap/cuda.py is built.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_cuda(nanobind::module_& module);

}  // namespace weightmap::python
