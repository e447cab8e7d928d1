// weightmap._core.processes(), on which weightmap/_files.py is built.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_processes(nanobind::module_& module);

}  // namespace weightmap::python
