// weightmap._core.Writer: a checkpoint that Python puts together.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_writer(nanobind::module_& module);

}  // namespace weightmap::python
