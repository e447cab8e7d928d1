// weightmap.Tensor: a view and what keeps it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
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

}  // namespace weightmap::python
