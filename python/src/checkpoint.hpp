// weightmap._core.Checkpoint, on which the class of that name in weightmap/_checkpoint.py is built.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/holder.hpp"

namespace weightmap::python {

// Holds the mapping until it is closed; tensors and arrays hold it on their own.
struct OpenCheckpoint {
  Owner owner;
  const Checkpoint& checkpoint() const noexcept { return owner->checkpoint(); }
};

void bind_checkpoint(nanobind::module_& module);

}  // namespace weightmap::python
