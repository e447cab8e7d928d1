#include "runtime/base/element_format.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace weightmap;

namespace {

// "float32: f, f4, float32, 2"; a dash for what there is not.
std::string described(DType dtype) {
  const ElementFormat& format = element_format(dtype);
  const auto or_dash = [](std::string text) { return text.empty() ? "-" : text; };
  const std::string typestr =
      format.numpy_kind == 0 ? "" : format.numpy_kind + std::to_string(element_size(dtype));
  return std::string(format.name) + ": " + or_dash(std::string(format.struct_code)) + ", " +
         or_dash(typestr) + ", " + or_dash(std::string(format.numpy_name)) + ", " +
         or_dash(format.dlpack_code ? std::to_string(*format.dlpack_code) : "") +
         (format.is_numpy_type() ? ", npy" : "") + "\n";
}

}  // namespace

// torch's name: code of struct, numpy's type, its name in numpy or ml_dtypes, code of DLPack, and
// whether an npy file has it.
TEST_CASE("says what struct, numpy and DLPack call each type") {
  std::string text;
  std::size_t type = 0;
  while (static_cast<DType>(type) != DType::float6_e2m3)
    text += described(static_cast<DType>(type++));
  CHECK(text ==
        "float64: d, f8, float64, 2, npy\n"
        "float32: f, f4, float32, 2, npy\n"
        "float16: e, f2, float16, 2, npy\n"
        "bfloat16: -, -, bfloat16, 4\n"
        "int64: q, i8, int64, 0, npy\n"
        "int32: i, i4, int32, 0, npy\n"
        "int16: h, i2, int16, 0, npy\n"
        "int8: b, i1, int8, 0, npy\n"
        "uint64: Q, u8, uint64, 1, npy\n"
        "uint32: I, u4, uint32, 1, npy\n"
        "uint16: H, u2, uint16, 1, npy\n"
        "uint8: B, u1, uint8, 1, npy\n"
        "bool: ?, b1, bool, 6, npy\n"
        "complex128: Zd, c16, complex128, 5, npy\n"
        "complex64: Zf, c8, complex64, 5, npy\n"
        "complex32: -, -, -, 5\n"
        "float8_e5m2: -, -, float8_e5m2, 12\n"
        "float8_e4m3fn: -, -, float8_e4m3fn, 10\n"
        "float8_e5m2fnuz: -, -, float8_e5m2fnuz, 13\n"
        "float8_e4m3fnuz: -, -, float8_e4m3fnuz, 11\n"
        "float8_e8m0fnu: -, -, float8_e8m0fnu, 14\n"
        "float4_e2m1fn_x2: B, u1, uint8, -\n"
        "qint8: b, i1, int8, -\n"
        "quint8: B, u1, uint8, -\n"
        "qint32: i, i4, int32, -\n"
        "quint4x2: B, u1, uint8, -\n"
        "quint2x4: B, u1, uint8, -\n"
        "bits8: B, u1, uint8, -\n"
        "bits1x8: B, u1, uint8, -\n"
        "bits2x4: B, u1, uint8, -\n"
        "bits4x2: B, u1, uint8, -\n"
        "bits16: H, u2, uint16, -\n"
        "uint1: B, u1, uint8, -\n"
        "uint2: -, -, uint2, -\n"
        "uint3: B, u1, uint8, -\n"
        "uint4: -, -, uint4, -\n"
        "uint5: B, u1, uint8, -\n"
        "uint6: B, u1, uint8, -\n"
        "uint7: B, u1, uint8, -\n"
        "int1: b, i1, int8, -\n"
        "int2: -, -, int2, -\n"
        "int3: b, i1, int8, -\n"
        "int4: -, -, int4, -\n"
        "int5: b, i1, int8, -\n"
        "int6: b, i1, int8, -\n"
        "int7: b, i1, int8, -\n"
        "opaque[1]: B, u1, uint8, -\n"
        "opaque[2]: H, u2, uint16, -\n");
  // Blocks are nothing to any of them.
  for (; type < dtype_count; ++type) {
    const std::string name(to_string(static_cast<DType>(type)));
    CHECK(described(static_cast<DType>(type)) == name + ": -, -, -, -\n");
  }
}

TEST_CASE("finds each type by torch's name") {
  for (std::size_t i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_from_string(element_format(dtype).name) == dtype);
  }
  CHECK(dtype_from_string("bool") == DType::boolean);
  CHECK(!dtype_from_string("float"));
}
