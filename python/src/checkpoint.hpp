// weightmap._core.Checkpoint, on which the class of that name in weightmap/_checkpoint.py is built.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/errors.hpp"
#include "python/src/holder.hpp"

namespace weightmap::python {

// Holds the mapping until it is closed; tensors and arrays hold it on their own.
struct OpenCheckpoint {
  Owner owner;
  const Checkpoint& checkpoint() const noexcept { return owner->checkpoint(); }
  // Raises if the bytes of its tensors are not there.
  const Checkpoint& with_bytes() const {
    value_or_raise(owner->check_bytes());
    return checkpoint();
  }
};

void bind_checkpoint(nanobind::module_& module);
// What concerns pages: of warming, of residency.
void bind_pages(nanobind::class_<OpenCheckpoint>& checkpoint);
void bind_rows(nanobind::module_& module, nanobind::class_<OpenCheckpoint>& checkpoint);
void bind_experts(nanobind::module_& module, nanobind::class_<OpenCheckpoint>& checkpoint);

nanobind::tuple generation_fields(const Generation& generation);

}  // namespace weightmap::python
