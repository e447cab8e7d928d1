// weightmap.Tensor: a view and what keeps it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "python/src/holder.hpp"

namespace weightmap::python {

inline constexpr bool native_is_big = std::endian::native == std::endian::big;

struct Tensor {
  Owner owner;
  // The tensor in the file. If this is a slice, the two offsets are those of the slice.
  NamedTensor named;
  std::optional<TensorSlice> part{};

  const TensorView& view() const noexcept { return part ? *part : named.view; }
  // Returns the place of the first element in the mapping; any place there if there is none.
  std::uint64_t position() const noexcept {
    return owner->checkpoint().source(named.source).mapping_offset + named.file_offset;
  }
  // The same as an address, whatever the byte order.
  const std::byte* data() const noexcept {
    return owner->checkpoint().mapping().data() + position();
  }
  bool is_writable() const noexcept { return owner->checkpoint().info().writable; }
};

void bind_tensor(nanobind::module_& module);

// The stored bits. What gives elements to others gives these of a blocked dtype.
Tensor bits_of(const Tensor& tensor);

// tensor[key] for an integer, a slice, an ellipsis or a tuple of these. Raises IndexError or
// TypeError as numpy does.
Tensor subscript(const Tensor& tensor, nanobind::handle key);

// Returns a part that subscripts selected before: the elements from `offset` on with this shape and
// these strides, all counted in elements. Raises invalid_argument if the tensor does not have them.
Tensor part_of(const Tensor& whole, std::uint64_t offset, const std::vector<std::int64_t>& shape,
               const std::vector<std::int64_t>& strides);

nanobind::tuple shape_of(const Tensor& tensor);
nanobind::tuple strides_of(const Tensor& tensor);  // in elements

// The stride of a dimension in bytes. Nothing bounds one along which no two elements lie, and no
// reader uses it: 0 where it does not fit.
inline std::int64_t byte_stride(const TensorView& view, std::size_t dim) noexcept {
  std::int64_t bytes;
  const auto size = static_cast<std::int64_t>(element_size(view.dtype()));
  return __builtin_mul_overflow(view.strides()[dim], size, &bytes) ? 0 : bytes;
}

// --- as arrays of numpy and torch (arrays.cpp), by the buffer protocol (buffer.cpp)

nanobind::object to_numpy(const Tensor& tensor);
// `copy_on_write`: None for what the checkpoint was opened with, or what stands in its place.
nanobind::object to_torch(const Tensor& tensor, nanobind::handle copy_on_write);
// Those of a list of tensors of one checkpoint as to_torch() makes them, and one object for what is
// one tensor under several names. None for those that torch's functions have to make: they share
// their storage with another tensor of the list, or use a part of it, or are no Tensor.
nanobind::list to_torch_at_once(const nanobind::list& objects);
// __array_interface__. Raises AttributeError where numpy itself has no word for the tensor.
nanobind::dict array_interface(const Tensor& tensor);

// A memoryview with the shape, strides and format of the tensor. Raises BufferError where the
// protocol has no word for it. Tensor itself has no buffer: who takes one from whatever has one,
// as int() and torch.asarray() do, takes no notice of the format and gets wrong numbers.
nanobind::object buffer_of(const Tensor& tensor);

void bind_tensor_buffer(nanobind::module_& module);

// --- elements as Python's own numbers (elements.cpp)

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
