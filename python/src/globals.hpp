// weightmap.unsafe_globals() and the list of what torch allows.
#pragma once

#include <nanobind/nanobind.h>

namespace weightmap::python {

void bind_globals(nanobind::module_& module);

}  // namespace weightmap::python
