// Filling reserved storages in place.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_fill(nanobind::module_& module);

}  // namespace weightmap::python
