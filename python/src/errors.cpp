#include "python/src/errors.hpp"

#include <nanobind/nanobind.h>

#include <string>

namespace weightmap::python {

namespace nb = nanobind;

void raise(const Error& error) {
  const std::string_view code = to_string(error.code);
  const nb::object offset =
      error.file_offset == Error::no_offset ? nb::none() : nb::object(nb::int_(error.file_offset));
  const nb::object file =
      error.file.empty() ? nb::none() : nb::object(nb::str(error.file.data(), error.file.size()));
  const nb::object exception =
      nb::module_::import_("weightmap._errors")
          .attr("from_library")(nb::str(code.data(), code.size()),
                                nb::str(error.message.data(), error.message.size()), offset, file,
                                error.os_error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void raise(ErrorCode code, std::string message) {
  raise(Error{code, std::move(message), Error::no_offset, {}});
}

}  // namespace weightmap::python
