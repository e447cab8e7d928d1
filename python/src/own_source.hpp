// A RangeSource over an object of Python: what weightmap/_remote/bridge.py makes of any that has
// name, size, tag and read_into().
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "weightmap/remote.hpp"

namespace weightmap::python {

// Precondition: `bridge` is one of bridge.py. Needs the GIL; the functions of what it returns are
// called by threads without it.
std::unique_ptr<RangeSource> own_source(nanobind::handle bridge);

}  // namespace weightmap::python
