// The memory of an object with the buffer protocol, for owners of any thread.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <span>

namespace weightmap::python {

struct ExportedMemory {
  std::span<const std::byte> bytes;
  // The object may neither release nor resize its memory before the last copy of this is gone,
  // which may be in any thread, with or without the GIL.
  std::shared_ptr<const void> owner;
};

// Raises InvalidArgumentError for memory that is not contiguous, or may be written to unless
// `trusted`; TypeError or BufferError as the object does.
ExportedMemory export_memory(nanobind::handle object, bool trusted);

}  // namespace weightmap::python
