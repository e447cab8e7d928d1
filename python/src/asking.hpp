// Python functions as the library calls them: from threads that do not have the GIL, with what they
// raise as an Error.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <memory>
#include <type_traits>

#include "weightmap/result.hpp"

namespace weightmap::python {

// A Python object that threads without the GIL may pass on, copy and drop.
using HeldObject = std::shared_ptr<nanobind::object>;

// Needs the GIL.
inline HeldObject hold_object(nanobind::object object) {
  return {new nanobind::object(std::move(object)), [](nanobind::object* held) {
            if (!Py_IsInitialized()) return;  // the interpreter has ended, and the object with it
            const nanobind::gil_scoped_acquire gil;
            delete held;
          }};
}

// The Error of what Python code has raised: code io, and no file yet. Needs the GIL.
Error error_of(const std::exception& raised);

// Returns what `ask` does, which is called with the GIL.
template <class Ask>
auto asking(const Ask& ask) -> Result<decltype(ask())> {
  const nanobind::gil_scoped_acquire gil;
  try {
    if constexpr (std::is_void_v<decltype(ask())>) {
      ask();
      return {};
    } else {
      return ask();
    }
  } catch (const std::exception& raised) {
    return tl::unexpected<Error>(error_of(raised));
  }
}

}  // namespace weightmap::python
