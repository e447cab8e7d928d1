// What the struct module calls the elements of a tensor.
#pragma once

#include "weightmap/dtype.hpp"

namespace weightmap::python {

// "f", "q", "Zd" ...; nullptr if there is no word for them. Quantized and packed types show their
// stored integers.
const char* struct_format(DType dtype) noexcept;

}  // namespace weightmap::python
