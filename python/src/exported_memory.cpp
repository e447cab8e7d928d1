#include "python/src/exported_memory.hpp"

#include "python/src/errors.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// At the end of the interpreter the memory stays with the object.
void give_back(Py_buffer* buffer) {
  if (nb::is_alive()) {
    const nb::gil_scoped_acquire gil;
    PyBuffer_Release(buffer);
  }
  delete buffer;
}

[[noreturn]] void refuse(std::string why) {
  raise({ErrorCode::invalid_argument, std::move(why), Error::no_offset, "memory"});
}

}  // namespace

ExportedMemory export_memory(nb::handle object, bool trusted) {
  auto made = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), made.get(), PyBUF_FULL_RO) != 0) throw nb::python_error();
  const std::shared_ptr<const Py_buffer> buffer(made.release(), give_back);
  if (PyBuffer_IsContiguous(buffer.get(), 'C') == 0)
    refuse("the buffer is not contiguous, so its bytes are not those of a file");
  if (buffer->readonly == 0 && !trusted)
    refuse(
        "the buffer is writable, so its bytes may change while tensors lie in them; open(buffer, "
        "trust=True) trusts all who have it");
  return {{static_cast<const std::byte*>(buffer->buf), static_cast<std::size_t>(buffer->len)},
          buffer};
}

}  // namespace weightmap::python
