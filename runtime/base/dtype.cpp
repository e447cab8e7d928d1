#include "weightmap/dtype.hpp"

#include <array>

namespace weightmap {
namespace {

// Indexed by DType; the order of the enumeration.
constexpr std::array<std::string_view, dtype_count> names = {"float64",
                                                             "float32",
                                                             "float16",
                                                             "bfloat16",
                                                             "int64",
                                                             "int32",
                                                             "int16",
                                                             "int8",
                                                             "uint64",
                                                             "uint32",
                                                             "uint16",
                                                             "uint8",
                                                             "bool",
                                                             "complex128",
                                                             "complex64",
                                                             "complex32",
                                                             "float8_e5m2",
                                                             "float8_e4m3fn",
                                                             "float8_e5m2fnuz",
                                                             "float8_e4m3fnuz",
                                                             "float8_e8m0fnu",
                                                             "float4_e2m1fn_x2",
                                                             "qint8",
                                                             "quint8",
                                                             "qint32",
                                                             "quint4x2",
                                                             "quint2x4",
                                                             "bits8",
                                                             "bits1x8",
                                                             "bits2x4",
                                                             "bits4x2",
                                                             "bits16",
                                                             "uint1",
                                                             "uint2",
                                                             "uint3",
                                                             "uint4",
                                                             "uint5",
                                                             "uint6",
                                                             "uint7",
                                                             "int1",
                                                             "int2",
                                                             "int3",
                                                             "int4",
                                                             "int5",
                                                             "int6",
                                                             "int7"};

}  // namespace

std::string_view to_string(DType dtype) noexcept { return names[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_from_string(std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace weightmap
