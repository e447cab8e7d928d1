// Text of a file as Python sees it: UTF-8 in which lone surrogates may stand as if they were
// characters, which is how pickle writes them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace weightmap::python {

inline nanobind::str to_str(std::string_view utf8) {
  PyObject* text =
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "surrogatepass");
  if (text == nullptr) throw nanobind::python_error();
  return nanobind::steal<nanobind::str>(text);
}

inline std::string to_utf8(nanobind::handle text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass");
  if (bytes == nullptr) throw nanobind::python_error();
  const auto owned = nanobind::steal<nanobind::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

}  // namespace weightmap::python
