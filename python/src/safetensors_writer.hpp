// weightmap._core.SafetensorsWriter: a safetensors file, or a set, that Python puts together.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_safetensors_writer(nanobind::module_& module);

}  // namespace weightmap::python
