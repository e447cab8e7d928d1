// Methods without arguments, or with one that need not be given, that inspect.signature()
// understands.
//
// Only nanobind's stub generator can read the signature of a function that nanobind binds. So these
// are method descriptors as Python has for its own types, in front of nanobind's functions,
// which still converts and turns C++ exceptions into Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace weightmap::python {

// `definition` lives as long as the one interpreter that there is.
inline void set_method(nanobind::handle type, PyMethodDef& definition) {
  nanobind::object method =
      nanobind::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &definition));
  if (!method.is_valid()) throw nanobind::python_error();
  nanobind::setattr(type, definition.ml_name, method);
}

// Makes `Function`, which takes an instance of `type`, its method `name`. Once for each function.
template <auto Function>
void def_plain(nanobind::handle type, const char* name, const char* doc) {
  static PyObject* const bound =
      nanobind::cpp_function(Function, nanobind::scope(type), nanobind::name(name)).release().ptr();
  static const std::string text = std::string(name) + "($self, /)\n--\n\n" + doc;
  static PyMethodDef definition{
      name, [](PyObject* self, PyObject*) { return PyObject_Vectorcall(bound, &self, 1, nullptr); },
      METH_NOARGS, text.c_str()};
  set_method(type, definition);
}

// The same where `Function` takes one argument more, which is None unless it is given by its name.
template <auto Function>
void def_optional(nanobind::handle type, const char* name, const char* argument, const char* doc) {
  namespace nb = nanobind;
  static PyObject* const bound =
      nb::cpp_function(Function, nb::scope(type), nb::name(name), nb::arg("self"),
                       nb::arg(argument).none() = nb::none())
          .release()
          .ptr();
  static const std::string text =
      std::string(name) + "($self, /, *, " + argument + "=None)\n--\n\n" + doc;
  static const char* const names[] = {name, argument};
  constexpr PyCFunctionWithKeywords call = [](PyObject* self, PyObject* positional,
                                              PyObject* named) -> PyObject* {
    if (PyTuple_Size(positional) != 0)
      return PyErr_Format(PyExc_TypeError, "%s() takes no positional arguments", names[0]);
    if (named == nullptr) return PyObject_Vectorcall(bound, &self, 1, nullptr);
    if (PyDict_Size(named) != 1 || PyDict_GetItemString(named, names[1]) == nullptr)
      return PyErr_Format(PyExc_TypeError, "%s() takes no keyword arguments but %s", names[0],
                          names[1]);
    const nb::object only_self = nb::make_tuple(nb::handle(self));
    return PyObject_Call(bound, only_self.ptr(), named);
  };
  static PyMethodDef definition{name,
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                                METH_VARARGS | METH_KEYWORDS, text.c_str()};
  set_method(type, definition);
}

}  // namespace weightmap::python
