#include "python/src/element_format.hpp"

namespace weightmap::python {

const char* struct_format(DType dtype) noexcept {
  switch (dtype) {
    case DType::float64:
      return "d";
    case DType::float32:
      return "f";
    case DType::float16:
      return "e";
    case DType::int64:
      return "q";
    case DType::int32:
    case DType::qint32:
      return "i";
    case DType::int16:
      return "h";
    case DType::uint64:
      return "Q";
    case DType::uint32:
      return "I";
    case DType::uint16:
    case DType::bits16:
      return "H";
    case DType::boolean:
      return "?";
    case DType::complex128:
      return "Zd";
    case DType::complex64:
      return "Zf";
    case DType::complex32:
    case DType::bfloat16:
    case DType::float8_e5m2:
    case DType::float8_e4m3fn:
    case DType::float8_e5m2fnuz:
    case DType::float8_e4m3fnuz:
    case DType::float8_e8m0fnu:
      return nullptr;
    case DType::int8:
    case DType::qint8:
    case DType::int1:
    case DType::int2:
    case DType::int3:
    case DType::int4:
    case DType::int5:
    case DType::int6:
    case DType::int7:
      return "b";
    default:
      return "B";
  }
}

}  // namespace weightmap::python
