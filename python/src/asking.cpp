#include "python/src/asking.hpp"

#include <nanobind/stl/string.h>

#include <string>

namespace weightmap::python {

namespace nb = nanobind;

Error error_of(const std::exception& raised) {
  Error error{ErrorCode::io, "a Python function failed", Error::no_offset, {}};
  const auto* exception = dynamic_cast<const nb::python_error*>(&raised);
  if (exception == nullptr) {
    error.message += std::string(": ") + raised.what();
    return error;
  }
  try {
    const nb::object told =
        nb::module_::import_("weightmap._remote.bridge").attr("tell")(exception->value());
    error.message = nb::cast<std::string>(told[0]);
    error.os_error = nb::cast<int>(told[1]);
  } catch (const std::exception&) {  // no memory, or Python ends: the general words stay
  }
  return error;
}

}  // namespace weightmap::python
