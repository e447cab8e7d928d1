// Methods without arguments that inspect.signature() understands.
//
// What nanobind binds tells its signature to nanobind's stub generator, and to nobody else. So
// these are method descriptors as Python has for its own types, in front of what nanobind binds,
// which still converts and turns C++ exceptions into Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace weightmap::python {

// Makes `Function`, which takes an instance of `type`, its method `name`. Once for each function.
template <auto Function>
void def_plain(nanobind::handle type, const char* name, const char* doc) {
  // All of these are for the one interpreter that there is, to its end.
  static PyObject* const bound =
      nanobind::cpp_function(Function, nanobind::scope(type), nanobind::name(name)).release().ptr();
  static const std::string text = std::string(name) + "($self, /)\n--\n\n" + doc;
  static PyMethodDef definition{
      name, [](PyObject* self, PyObject*) { return PyObject_Vectorcall(bound, &self, 1, nullptr); },
      METH_NOARGS, text.c_str()};
  nanobind::object method =
      nanobind::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &definition));
  if (!method.is_valid()) throw nanobind::python_error();
  nanobind::setattr(type, name, method);
}

}  // namespace weightmap::python
