// weightmap.Tensor: a view and what keeps it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <span>

#include "python/src/holder.hpp"

namespace weightmap::python {

struct Tensor {
  Owner owner;
  // Of the tensor in the file; the two offsets are those of the slice, where this is one.
  NamedTensor named;
  std::optional<TensorSlice> part = {};

  const TensorView& view() const noexcept { return part ? *part : named.view; }
  // The first element, whatever the byte order; some address in the mapping if there is none.
  const std::byte* data() const noexcept {
    return owner->checkpoint().mapping().data() + named.file_offset;
  }
  bool is_writable() const noexcept { return owner->checkpoint().info().writable; }
};

void bind_tensor(nanobind::module_& module);

// tensor[key] for an integer, a slice, an ellipsis or a tuple of these. Raises IndexError or
// TypeError as numpy does.
Tensor subscript(const Tensor& tensor, nanobind::handle key);

nanobind::tuple shape_of(const Tensor& tensor);
nanobind::tuple strides_of(const Tensor& tensor);  // in elements

}  // namespace weightmap::python
