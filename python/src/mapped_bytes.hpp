// The whole file as an object with the buffer protocol, for those who make arrays of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

#include "python/src/holder.hpp"

namespace weightmap::python {

struct MappedBytes {
  Owner owner;
  std::span<const std::byte> bytes;
  bool writable;
};

// The mapping as it was opened.
MappedBytes mapped_bytes(const Owner& owner);
// Memory that may be written to; see Holder::writable_memory(). Raises if there can be none.
MappedBytes writable_bytes(const Owner& owner);

void bind_mapped_bytes(nanobind::module_& module);

}  // namespace weightmap::python
