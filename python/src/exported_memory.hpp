// The memory of objects with the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <span>

namespace weightmap::python {

// For owners of any thread.
struct ExportedMemory {
  std::span<const std::byte> bytes;
  // The object may neither release nor resize its memory before the last copy of this is gone,
  // which may be in any thread, with or without the GIL.
  std::shared_ptr<const void> owner;
};

// Raises InvalidArgumentError for memory that is not contiguous, or may be written to unless
// `trusted`; TypeError or BufferError as the object does.
ExportedMemory export_memory(nanobind::handle object, bool trusted);

// The memory of a writable object. Holds the memory until it ends. Needs the GIL.
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
