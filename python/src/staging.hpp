// weightmap._core.StagedFile, on which the class of that name in weightmap/_staging.py is built.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_staging(nanobind::module_& module);

}  // namespace weightmap::python
