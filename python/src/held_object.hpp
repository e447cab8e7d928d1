// A Python object that threads without the GIL may pass on, copy and drop.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace weightmap::python {

using HeldObject = std::shared_ptr<nanobind::object>;

// Needs the GIL.
inline HeldObject hold_object(nanobind::object object) {
  return {new nanobind::object(std::move(object)), [](nanobind::object* held) {
            if (!Py_IsInitialized()) return;  // the interpreter has ended, and the object with it
            const nanobind::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace weightmap::python
