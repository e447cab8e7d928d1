#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "python/src/bindings.hpp"
#include "python/src/errors.hpp"
#include "python/src/tensor.hpp"
#include "runtime/base/element_format.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// The object that a memoryview keeps alive.
struct TensorBuffer {
  Tensor tensor;
};

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
  const Tensor& tensor = nb::inst_ptr<TensorBuffer>(self)->tensor;
  const TensorView& view = tensor.view();
  const std::string_view format = element_format(view.dtype()).struct_code;
  if (format.empty())
    return refuse(out, "the buffer protocol has no word for " +
                           std::string(to_string(view.dtype())) +
                           "; .bits().buffer() gives its elements as integers");
  if (view.is_conjugate() || view.is_negative())
    return refuse(out, "the tensor was saved as a lazy conjugate or negative; take .torch()");
  if ((flags & PyBUF_WRITABLE) != 0 && !tensor.is_writable())
    return refuse(out, "the mapping is read-only");
  if (!fits_request(view, flags)) return refuse(out, "the tensor is not contiguous");
  auto dims = std::make_unique<BufferDims>();
  const auto size = static_cast<Py_ssize_t>(element_size(view.dtype()));
  for (std::int64_t length : view.shape()) dims->values.push_back(length);
  for (std::size_t dim = 0; dim < view.rank(); ++dim)
    dims->values.push_back(byte_stride(view, dim));
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

int get_tensor_buffer(PyObject* self, Py_buffer* out, int flags) noexcept {
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

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_tensor_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

}  // namespace

nb::object buffer_of(const Tensor& tensor) {
  value_or_raise(tensor.owner->check_bytes());
  return checked(PyMemoryView_FromObject(nb::cast(TensorBuffer{tensor}).ptr()));
}

void bind_tensor_buffer(nb::module_& module) {
  nb::class_<TensorBuffer>(module, "TensorBuffer", nb::type_slots(tensor_slots),
                           "What Tensor.buffer() is a view of: the elements, by the buffer "
                           "protocol.");
}

}  // namespace weightmap::python
