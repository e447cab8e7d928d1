#include "python/src/python_value.hpp"

#include "python/src/bindings.hpp"
#include "python/src/text.hpp"

namespace weightmap::python {
namespace {

namespace nb = nanobind;

// Little-endian two's complement.
nb::object big_integer(std::span<const std::byte> digits) {
  const nb::bytes text(reinterpret_cast<const char*>(digits.data()), digits.size());
  nb::kwargs is_signed;
  is_signed["signed"] = true;
  const nb::handle type(reinterpret_cast<PyObject*>(&PyLong_Type));
  return type.attr("from_bytes")(text, "little", **is_signed);
}

}  // namespace

nb::object to_python(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::boolean:
      return nb::bool_(*value.boolean());
    case Value::Kind::integer:
      return checked(PyLong_FromLongLong(*value.integer()));
    case Value::Kind::real:
      return checked(PyFloat_FromDouble(*value.real()));
    case Value::Kind::string:
      return to_str(*value.string());
    case Value::Kind::bytes: {
      const std::span<const std::byte> bytes = *value.bytes();
      return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    case Value::Kind::byte_array: {
      const std::span<const std::byte> bytes = *value.bytes();
      return checked(PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                                   static_cast<Py_ssize_t>(bytes.size())));
    }
    case Value::Kind::big_integer:
      return big_integer(*value.big_integer());
    default:
      return nb::none();
  }
}

nb::tuple to_python(std::span<const PathPart> path) {
  nb::list parts;
  for (const PathPart& part : path) {
    if (part.is_integer())
      parts.append(part.integer());
    else
      parts.append(to_str(part.key()));
  }
  return nb::tuple(parts);
}

}  // namespace weightmap::python
