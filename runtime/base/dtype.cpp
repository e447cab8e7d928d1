#include "weightmap/dtype.hpp"

#include <array>

#include "runtime/base/element_format.hpp"

namespace weightmap {
namespace {

// DLPack's codes.
constexpr std::uint8_t signed_integer = 0, unsigned_integer = 1, real = 2, bfloat = 4, complex = 5,
                       boolean = 6, float8_e4m3fn = 10, float8_e4m3fnuz = 11, float8_e5m2 = 12,
                       float8_e5m2fnuz = 13, float8_e8m0fnu = 14;
constexpr std::nullopt_t none = std::nullopt;

// Indexed by DType.
constexpr std::array<ElementFormat, dtype_count> formats = {{
    {"float64", "d", 'f', "float64", real},
    {"float32", "f", 'f', "float32", real},
    {"float16", "e", 'f', "float16", real},
    {"bfloat16", "", 0, "bfloat16", bfloat},
    {"int64", "q", 'i', "int64", signed_integer},
    {"int32", "i", 'i', "int32", signed_integer},
    {"int16", "h", 'i', "int16", signed_integer},
    {"int8", "b", 'i', "int8", signed_integer},
    {"uint64", "Q", 'u', "uint64", unsigned_integer},
    {"uint32", "I", 'u', "uint32", unsigned_integer},
    {"uint16", "H", 'u', "uint16", unsigned_integer},
    {"uint8", "B", 'u', "uint8", unsigned_integer},
    {"bool", "?", 'b', "bool", boolean},
    {"complex128", "Zd", 'c', "complex128", complex},
    {"complex64", "Zf", 'c', "complex64", complex},
    {"complex32", "", 0, "", complex},
    {"float8_e5m2", "", 0, "float8_e5m2", float8_e5m2},
    {"float8_e4m3fn", "", 0, "float8_e4m3fn", float8_e4m3fn},
    {"float8_e5m2fnuz", "", 0, "float8_e5m2fnuz", float8_e5m2fnuz},
    {"float8_e4m3fnuz", "", 0, "float8_e4m3fnuz", float8_e4m3fnuz},
    {"float8_e8m0fnu", "", 0, "float8_e8m0fnu", float8_e8m0fnu},
    {"float4_e2m1fn_x2", "B", 'u', "uint8", none},
    {"qint8", "b", 'i', "int8", none},
    {"quint8", "B", 'u', "uint8", none},
    {"qint32", "i", 'i', "int32", none},
    {"quint4x2", "B", 'u', "uint8", none},
    {"quint2x4", "B", 'u', "uint8", none},
    {"bits8", "B", 'u', "uint8", none},
    {"bits1x8", "B", 'u', "uint8", none},
    {"bits2x4", "B", 'u', "uint8", none},
    {"bits4x2", "B", 'u', "uint8", none},
    {"bits16", "H", 'u', "uint16", none},
    {"uint1", "B", 'u', "uint8", none},
    {"uint2", "", 0, "uint2", none},
    {"uint3", "B", 'u', "uint8", none},
    {"uint4", "", 0, "uint4", none},
    {"uint5", "B", 'u', "uint8", none},
    {"uint6", "B", 'u', "uint8", none},
    {"uint7", "B", 'u', "uint8", none},
    {"int1", "b", 'i', "int8", none},
    {"int2", "", 0, "int2", none},
    {"int3", "b", 'i', "int8", none},
    {"int4", "", 0, "int4", none},
    {"int5", "b", 'i', "int8", none},
    {"int6", "b", 'i', "int8", none},
    {"int7", "b", 'i', "int8", none},
    {"opaque[1]", "B", 'u', "uint8", none},
    {"opaque[2]", "H", 'u', "uint16", none},
    {"float6_e2m3", "", 0, "", none},
    {"float6_e3m2", "", 0, "", none},
    {"q4_0", "", 0, "", none},
    {"q4_1", "", 0, "", none},
    {"q5_0", "", 0, "", none},
    {"q5_1", "", 0, "", none},
    {"q8_0", "", 0, "", none},
    {"q8_1", "", 0, "", none},
    {"q2_K", "", 0, "", none},
    {"q3_K", "", 0, "", none},
    {"q4_K", "", 0, "", none},
    {"q5_K", "", 0, "", none},
    {"q6_K", "", 0, "", none},
    {"q8_K", "", 0, "", none},
    {"iq2_xxs", "", 0, "", none},
    {"iq2_xs", "", 0, "", none},
    {"iq3_xxs", "", 0, "", none},
    {"iq1_s", "", 0, "", none},
    {"iq4_nl", "", 0, "", none},
    {"iq3_s", "", 0, "", none},
    {"iq2_s", "", 0, "", none},
    {"iq4_xs", "", 0, "", none},
    {"iq1_m", "", 0, "", none},
    {"tq1_0", "", 0, "", none},
    {"tq2_0", "", 0, "", none},
    {"mxfp4", "", 0, "", none},
    {"nvfp4", "", 0, "", none},
    {"q1_0", "", 0, "", none},
    {"q2_0", "", 0, "", none},
}};

}  // namespace

const ElementFormat& element_format(DType dtype) noexcept {
  return formats[static_cast<std::size_t>(dtype)];
}

std::string_view to_string(DType dtype) noexcept { return element_format(dtype).name; }

std::optional<DType> dtype_from_string(std::string_view name) noexcept {
  for (std::size_t i = 0; i < formats.size(); ++i)
    if (formats[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace weightmap
