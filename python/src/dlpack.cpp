#include "python/src/dlpack.hpp"

#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/src/errors.hpp"
#include "runtime/base/element_format.hpp"
#include "weightmap/backing.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

[[noreturn]] void throw_buffer_error(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw nb::python_error();
}

// `strides` may be nullptr for row-major; `owner` is what the capsule keeps.
template <class Array>
nb::object dlpack_array(const Tensor& tensor, void* data, const std::int64_t* strides,
                        nb::handle owner) {
  const TensorView& view = tensor.view();
  const std::vector<std::size_t> shape(view.shape().begin(), view.shape().end());
  return nb::cast(Array(data, view.rank(), shape.data(), owner, strides, dlpack_type(view.dtype())),
                  nb::rv_policy::reference);
}

// Returns true if the consumer asked for the versioned form.
bool knows_read_only_flag(const nb::dict& arguments) {
  if (!arguments.contains("max_version")) return false;
  const nb::object version = arguments["max_version"];
  return nb::isinstance<nb::tuple>(version) && nb::len(version) == 2 &&
         nb::cast<long>(version[0]) >= 1;
}

// A copy is what its consumer makes of it: writable, row-major, in this machine's byte order.
nb::object copy_to_dlpack(const Tensor& tensor, const nb::dict& arguments) {
  const TensorView& view = tensor.view();
  auto copy = std::make_unique<std::byte[]>(view.nbytes());
  value_or_raise(copy_elements(tensor, {copy.get(), view.nbytes()}));
  const nb::capsule owner(copy.get(),
                          [](void* data) noexcept { delete[] static_cast<std::byte*>(data); });
  return dlpack_array<nb::ndarray<nb::array_api>>(tensor, copy.release(), nullptr, owner)
      .attr("__dlpack__")(**arguments);
}

// Read-only memory is flagged as such, and beside that mostly lies in a copy-on-write mapping
// (Backing::lend()): a consumer that does not know the flag (torch 2.13) then changes pages of
// its own, instead of ending the process with SIGSEGV.
nb::object view_to_dlpack(const Tensor& tensor, const nb::dict& arguments) {
  const TensorView& view = tensor.view();
  if (view.is_foreign_byte_order())
    throw_buffer_error("DLPack has no word for a foreign byte order; take .torch(), or copy=True");
  if (!tensor.is_writable() && !knows_read_only_flag(arguments))
    throw_buffer_error(
        "the tensor is read-only, which only DLPack 1.0 and later can say; take .torch(), or open "
        "the checkpoint with sharing=\"private\", writable=True");
  const Checkpoint& checkpoint = tensor.owner->checkpoint();
  const std::uint64_t storage_bytes =
      Backing(checkpoint).storage(tensor.named.storage_index).nbytes;
  const std::span<std::byte> memory = value_or_raise(tensor.owner->lend(storage_bytes));
  std::byte* data = view.numel() == 0 ? nullptr : memory.data() + tensor.position();
  const nb::object self = nb::find(tensor);  // what the capsule keeps
  const std::int64_t* strides = view.strides().data();
  const nb::object array =
      tensor.is_writable()
          ? dlpack_array<nb::ndarray<nb::array_api>>(tensor, data, strides, self)
          : dlpack_array<nb::ndarray<nb::array_api, nb::ro>>(tensor, data, strides, self);
  return array.attr("__dlpack__")(**arguments);
}

}  // namespace

nb::dlpack::dtype dlpack_type(DType dtype) {
  const std::optional<std::uint8_t> code = element_format(dtype).dlpack_code;
  if (!code)
    throw_buffer_error(
        "DLPack has no word for " + std::string(to_string(dtype)) + "; .bits() gives " +
        (is_blocked(dtype) ? "the bytes of its blocks" : "its elements as integers"));
  return {*code, static_cast<std::uint8_t>(8 * element_size(dtype)), 1};
}

nb::object to_dlpack(const Tensor& tensor, const nb::kwargs& kwargs) {
  static_cast<void>(dlpack_type(tensor.view().dtype()));  // before anything is copied
  if (tensor.view().is_conjugate() || tensor.view().is_negative())
    throw_buffer_error("DLPack has no word for a lazy conjugate or negative; take .torch()");
  nb::dict arguments;
  bool copy = false;
  for (const auto& [name, value] : kwargs) {
    if (nb::cast<std::string_view>(name) == "copy")
      copy = value.is(Py_True);
    else
      arguments[name] = value;
  }
  return copy ? copy_to_dlpack(tensor, arguments) : view_to_dlpack(tensor, arguments);
}

}  // namespace weightmap::python
