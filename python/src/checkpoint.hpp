// weightmap._core.Checkpoint, on which the class of that name in weightmap/_checkpoint.py is built.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_checkpoint(nanobind::module_& module);

}  // namespace weightmap::python
