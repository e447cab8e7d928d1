#include "python/src/exchange.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/src/errors.hpp"
#include "python/src/mapped_bytes.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

constexpr bool native_is_big = std::endian::native == std::endian::big;

// What the struct module calls the elements; nullptr if it has no word for them. Quantized and
// packed types show their stored integers.
const char* struct_format(DType dtype) noexcept {
  switch (dtype) {
    case DType::float64:
      return "d";
    case DType::float32:
      return "f";
    case DType::float16:
      return "e";
    case DType::int64:
      return "q";
    case DType::int32:
    case DType::qint32:
      return "i";
    case DType::int16:
      return "h";
    case DType::uint64:
      return "Q";
    case DType::uint32:
      return "I";
    case DType::uint16:
    case DType::bits16:
      return "H";
    case DType::boolean:
      return "?";
    case DType::complex128:
      return "Zd";
    case DType::complex64:
      return "Zf";
    case DType::complex32:
    case DType::bfloat16:
    case DType::float8_e5m2:
    case DType::float8_e4m3fn:
    case DType::float8_e5m2fnuz:
    case DType::float8_e4m3fnuz:
    case DType::float8_e8m0fnu:
      return nullptr;
    case DType::int8:
    case DType::qint8:
    case DType::int1:
    case DType::int2:
    case DType::int3:
    case DType::int4:
    case DType::int5:
    case DType::int6:
    case DType::int7:
      return "b";
    default:
      return "B";
  }
}

// Lazy bits mean that the stored values are not the tensor's.
void refuse_lazy_bits(const Tensor& tensor) {
  if (!tensor.view().is_conjugate() && !tensor.view().is_negative()) return;
  raise(ErrorCode::unsupported,
        "tensor '" + std::string(tensor.named.name) +
            "' was saved as a lazy conjugate or negative: its stored values are not its values; "
            "take .torch(), or .bits() for what is stored");
}

// Shape and strides in bytes; what Py_buffer::internal points to.
struct BufferDims {
  std::vector<Py_ssize_t> values;
  std::string format;
};

// The first dimension runs fastest, without gaps.
bool is_column_major(const TensorView& view) noexcept {
  if (view.numel() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t dim = 0; dim < view.rank(); ++dim) {
    const std::int64_t size = view.shape()[dim];
    if (size != 1 && view.strides()[dim] != expected) return false;
    expected *= size;
  }
  return true;
}

bool fits_request(const TensorView& view, int flags) noexcept {
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) return view.is_contiguous();
  const auto asks_for = [flags](int wanted) { return (flags & wanted) == wanted; };
  if (asks_for(PyBUF_C_CONTIGUOUS)) return view.is_contiguous();
  if (asks_for(PyBUF_F_CONTIGUOUS)) return is_column_major(view);
  if (asks_for(PyBUF_ANY_CONTIGUOUS)) return view.is_contiguous() || is_column_major(view);
  return true;
}

int refuse(Py_buffer* out, const std::string& why) noexcept {
  out->obj = nullptr;
  PyErr_SetString(PyExc_BufferError, why.c_str());
  return -1;
}

int fill_buffer(PyObject* self, Py_buffer* out, int flags) {
  if (!nb::inst_ready(self)) return refuse(out, "the tensor was never made");
  const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  const TensorView& view = tensor.view();
  const char* format = struct_format(view.dtype());
  if (format == nullptr)
    return refuse(out, "the buffer protocol has no word for " +
                           std::string(to_string(view.dtype())) +
                           "; .bits() gives its elements as integers");
  if (view.is_conjugate() || view.is_negative())
    return refuse(out, "the tensor was saved as a lazy conjugate or negative; take .torch()");
  if ((flags & PyBUF_WRITABLE) != 0 && !tensor.is_writable())
    return refuse(out, "the mapping is read-only");
  if (!fits_request(view, flags)) return refuse(out, "the tensor is not contiguous");
  auto dims = std::make_unique<BufferDims>();
  const auto size = static_cast<Py_ssize_t>(element_size(view.dtype()));
  for (std::int64_t length : view.shape()) dims->values.push_back(length);
  for (std::int64_t stride : view.strides()) dims->values.push_back(stride * size);
  if (view.is_foreign_byte_order()) dims->format = native_is_big ? "<" : ">";
  dims->format += format;
  *out = Py_buffer{};
  out->buf = const_cast<std::byte*>(tensor.data());
  out->len = static_cast<Py_ssize_t>(view.nbytes());
  out->itemsize = size;
  out->readonly = tensor.is_writable() ? 0 : 1;
  out->ndim = static_cast<int>(view.rank());
  if ((flags & PyBUF_FORMAT) != 0) out->format = dims->format.data();
  if ((flags & PyBUF_ND) != 0) out->shape = dims->values.data();
  if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) out->strides = dims->values.data() + view.rank();
  out->internal = dims.release();
  out->obj = Py_NewRef(self);
  return 0;
}

int get_buffer(PyObject* self, Py_buffer* out, int flags) noexcept {
  try {
    return fill_buffer(self, out, flags);
  } catch (const std::bad_alloc&) {
    out->obj = nullptr;
    PyErr_NoMemory();
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) noexcept {
  delete static_cast<BufferDims*>(view->internal);
}

nb::tuple to_tuple(std::span<const std::int64_t> values, std::int64_t factor = 1) {
  nb::list list;
  for (std::int64_t value : values) list.append(value * factor);
  return nb::tuple(list);
}

[[noreturn]] void throw_buffer_error(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw nb::python_error();
}

// Type codes of DLPack 1.1; nanobind names those up to complex.
nb::dlpack::dtype dlpack_type(const Tensor& tensor) {
  const DType dtype = tensor.view().dtype();
  const auto of = [dtype](int code) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code),
                             static_cast<std::uint8_t>(8 * element_size(dtype)), 1};
  };
  constexpr int signed_integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, complex = 5,
                boolean = 6;
  switch (dtype) {
    case DType::float64:
    case DType::float32:
    case DType::float16:
      return of(real);
    case DType::bfloat16:
      return of(bfloat);
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::int8:
      return of(signed_integer);
    case DType::uint64:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      return of(unsigned_integer);
    case DType::boolean:
      return of(boolean);
    case DType::complex128:
    case DType::complex64:
    case DType::complex32:
      return of(complex);
    case DType::float8_e4m3fn:
      return of(10);
    case DType::float8_e4m3fnuz:
      return of(11);
    case DType::float8_e5m2:
      return of(12);
    case DType::float8_e5m2fnuz:
      return of(13);
    case DType::float8_e8m0fnu:
      return of(14);
    default:
      throw_buffer_error("DLPack has no word for " + std::string(to_string(dtype)) +
                         "; .bits() gives its elements as integers");
  }
}

// `strides` may be nullptr for row-major; `owner` is what the capsule keeps.
template <class Array>
nb::object dlpack_array(const Tensor& tensor, void* data, const std::int64_t* strides,
                        nb::handle owner) {
  const TensorView& view = tensor.view();
  const std::vector<std::size_t> shape(view.shape().begin(), view.shape().end());
  return nb::cast(Array(data, view.rank(), shape.data(), owner, strides, dlpack_type(tensor)),
                  nb::rv_policy::reference);
}

// Whether the consumer asked for the versioned form.
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
  value_or_raise(view.copy_to({copy.get(), view.nbytes()}));
  const nb::capsule owner(copy.get(),
                          [](void* data) noexcept { delete[] static_cast<std::byte*>(data); });
  return dlpack_array<nb::ndarray<nb::array_api>>(tensor, copy.release(), nullptr, owner)
      .attr("__dlpack__")(**arguments);
}

// Read-only memory is flagged as such, and beside that lies in a copy-on-write mapping: a consumer
// that does not know the flag (torch 2.13) then changes pages of its own, instead of ending the
// process with SIGSEGV.
nb::object view_to_dlpack(const Tensor& tensor, const nb::dict& arguments) {
  const TensorView& view = tensor.view();
  if (view.is_foreign_byte_order())
    throw_buffer_error("DLPack has no word for a foreign byte order; take .torch(), or copy=True");
  if (!tensor.is_writable() && !knows_read_only_flag(arguments))
    throw_buffer_error(
        "the tensor is read-only, which only DLPack 1.0 and later can say; take .torch(), or open "
        "the checkpoint with sharing=\"private\", writable=True");
  const MappedBytes memory = writable_bytes(tensor.owner);
  std::byte* data = view.numel() == 0
                        ? nullptr
                        : const_cast<std::byte*>(memory.bytes.data()) + tensor.named.file_offset;
  const nb::object self = nb::find(tensor);  // what the capsule keeps
  const std::int64_t* strides = view.strides().data();
  const nb::object array =
      tensor.is_writable()
          ? dlpack_array<nb::ndarray<nb::array_api>>(tensor, data, strides, self)
          : dlpack_array<nb::ndarray<nb::array_api, nb::ro>>(tensor, data, strides, self);
  return array.attr("__dlpack__")(**arguments);
}

}  // namespace

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

nb::tuple shape_of(const Tensor& tensor) { return to_tuple(tensor.view().shape()); }
nb::tuple strides_of(const Tensor& tensor) { return to_tuple(tensor.view().strides()); }

nb::object to_numpy(const Tensor& tensor) {
  refuse_lazy_bits(tensor);
  const TensorView& view = tensor.view();
  const auto size = static_cast<std::int64_t>(element_size(view.dtype()));
  return nb::module_::import_("weightmap._numpy")
      .attr("view")(to_string(view.dtype()).data(), view.is_foreign_byte_order(), shape_of(tensor),
                    mapped_bytes(tensor.owner), tensor.named.file_offset,
                    to_tuple(view.strides(), size));
}

nb::object to_torch(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  const NamedStorage storage = *tensor.owner->find_storage(tensor.named.storage);
  return nb::module_::import_("weightmap._tensors")
      .attr("view")(writable_bytes(tensor.owner), storage.payload_offset, storage.nbytes,
                    to_string(view.dtype()).data(), tensor.named.storage_offset, shape_of(tensor),
                    strides_of(tensor), view.is_conjugate(), view.is_negative(),
                    view.is_foreign_byte_order());
}

nb::dict array_interface(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  const char* format = struct_format(view.dtype());
  if (format == nullptr || view.is_conjugate() || view.is_negative()) {
    // An AttributeError, so that numpy goes on to ask for __array__().
    PyErr_Format(PyExc_AttributeError, "numpy itself has no word for this %s; see Tensor.numpy()",
                 std::string(to_string(view.dtype())).c_str());
    throw nb::python_error();
  }
  const auto size = static_cast<std::int64_t>(element_size(view.dtype()));
  const bool is_big = view.is_foreign_byte_order() != native_is_big;
  const char kind = *format == '?'                                                    ? 'b'
                    : *format == 'Z'                                                  ? 'c'
                    : std::string_view("dfe").find(*format) != std::string_view::npos ? 'f'
                    : *format >= 'a'                                                  ? 'i'
                                                                                      : 'u';
  nb::dict description;
  description["version"] = 3;
  description["typestr"] = std::string(1, size == 1 ? '|'
                                          : is_big  ? '>'
                                                    : '<') +
                           kind + std::to_string(size);
  description["shape"] = shape_of(tensor);
  description["strides"] = to_tuple(view.strides(), size);
  description["data"] =
      nb::make_tuple(reinterpret_cast<std::uintptr_t>(tensor.data()), !tensor.is_writable());
  return description;
}

nb::object to_dlpack(const Tensor& tensor, const nb::kwargs& kwargs) {
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
