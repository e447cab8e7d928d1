// The whole file as an object with the buffer protocol, for those who make arrays of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "python/src/holder.hpp"

namespace weightmap::python {

struct MappedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  bool writable;
};

// Returns the mapping as it was opened. Raises if the bytes are not there.
MappedBytes mapped_bytes(const Owner& owner);
// Returns the memory of Backing::lend(). It is marked writable, since torch warns of memory that
// is not. Raises if it cannot be had.
MappedBytes lent_bytes(const Owner& owner, std::uint64_t storage_bytes,
                       std::optional<CopyOnWrite> how = {});

void bind_mapped_bytes(nanobind::module_& module);

}  // namespace weightmap::python
