// Text of a file as Python sees it: UTF-8 in which lone surrogates may stand as if they were
// characters, which is how pickle writes them. No pickler writes anything else; where a file has
// bytes that are not even that, each is shown as \xNN, so that one odd name does not hide the rest.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace weightmap::python {

inline nanobind::str to_str(std::string_view utf8) {
  const auto decode = [utf8](const char* how) {
    return PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), how);
  };
  PyObject* text = decode("surrogatepass");
  if (text == nullptr && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) != 0) {
    PyErr_Clear();
    text = decode("backslashreplace");
  }
  if (text == nullptr) throw nanobind::python_error();
  return nanobind::steal<nanobind::str>(text);
}

inline std::string to_utf8(nanobind::handle text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass");
  if (bytes == nullptr) throw nanobind::python_error();
  const auto owned = nanobind::steal<nanobind::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

template <class Texts>
nanobind::list to_strs(const Texts& texts) {
  nanobind::list list;
  for (const std::string_view text : texts) list.append(to_str(text));
  return list;
}

}  // namespace weightmap::python
