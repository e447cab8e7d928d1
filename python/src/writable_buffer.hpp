// The memory of a writable object, by the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

namespace weightmap::python {

// Holds the memory until it ends. Needs the GIL.
class WritableBuffer {
 public:
  explicit WritableBuffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_WRITABLE) != 0)
      throw nanobind::python_error();
  }
  WritableBuffer(const WritableBuffer&) = delete;
  WritableBuffer& operator=(const WritableBuffer&) = delete;
  ~WritableBuffer() { PyBuffer_Release(&buffer_); }

  std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

}  // namespace weightmap::python
