// Elements as Python's own numbers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

#include "python/src/tensor.hpp"

namespace weightmap::python {

// Checkpoint::gather(), which fails where the file is not what was opened any more. Needs no GIL.
Result<void> copy_elements(const Tensor& tensor, std::span<std::byte> out);

// Raises limit_exceeded where strides repeat what is stored more often than OpenOptions::repeats
// allows, before there is memory for it.
void check_repeats(const Tensor& tensor);

// The only element: bool, int, float or complex, exactly. Raises ValueError if there is not one,
// UnsupportedError if what is stored is not the value: quantized and packed types, lazy bits.
nanobind::object item_of(const Tensor& tensor);
// The elements in lists as deep as the tensor has dimensions; item_of() if it has none.
nanobind::object to_list(const Tensor& tensor);
// Implements iter(): the parts along the first dimension. Raises TypeError if there is none.
nanobind::object iterate(const Tensor& tensor);

// Implement int(), float(), complex() and operator.index(). Raise TypeError where numpy does.
nanobind::object to_int(const Tensor& tensor);
nanobind::object to_float(const Tensor& tensor);
nanobind::object to_complex(const Tensor& tensor);
nanobind::object to_index(const Tensor& tensor);

// Statistics of the elements, as a weightmap.TensorStats. Ctrl-C ends it.
nanobind::object stats_of(const Tensor& tensor);

// Quantized and packed types: their stored integers are not their values.
bool stores_values(DType dtype) noexcept;

}  // namespace weightmap::python
