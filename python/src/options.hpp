// The keyword arguments of weightmap.open() as OpenOptions.
#pragma once

#include <nanobind/nanobind.h>

#include "weightmap/options.hpp"

namespace weightmap::python {

// `options` holds None or a word ("shared", "crc", "big") or a bool for each field that is named.
// Raises invalid_argument for an unknown name or word.
OpenOptions read_options(const nanobind::dict& options);

}  // namespace weightmap::python
