// Element types of PyTorch storages and tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weightmap/export.hpp"

namespace weightmap {

// Spelled as torch spells them. The quantized types name their raw integer representation; the
// packed ones (quint4x2, quint2x4, float4_e2m1fn_x2, bits1x8 ...) have one-byte elements that hold
// several values each.
enum class DType : std::uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint64,
  uint32,
  uint16,
  uint8,
  boolean,
  complex128,
  complex64,
  complex32,
  float8_e5m2,
  float8_e4m3fn,
  float8_e5m2fnuz,
  float8_e4m3fnuz,
  float8_e8m0fnu,
  float4_e2m1fn_x2,
  qint8,
  quint8,
  qint32,
  quint4x2,
  quint2x4,
  bits8,
  bits1x8,
  bits2x4,
  bits4x2,
  bits16,
  uint1,
  uint2,
  uint3,
  uint4,
  uint5,
  uint6,
  uint7,
  int1,
  int2,
  int3,
  int4,
  int5,
  int6,
  int7,
};
inline constexpr std::size_t dtype_count = static_cast<std::size_t>(DType::int7) + 1;

// Bytes of one element: 1, 2, 4, 8 or 16.
constexpr std::size_t element_size(DType dtype) noexcept {
  using enum DType;
  switch (dtype) {
    case complex128:
      return 16;
    case float64:
    case int64:
    case uint64:
    case complex64:
      return 8;
    case float32:
    case int32:
    case uint32:
    case qint32:
    case complex32:
      return 4;
    case float16:
    case bfloat16:
    case int16:
    case uint16:
    case bits16:
      return 2;
    default:
      return 1;
  }
}

// Bytes of the unit that a change of byte order reverses: the element itself, half of it for
// complex types.
constexpr std::size_t swap_unit(DType dtype) noexcept {
  const bool complex =
      dtype == DType::complex128 || dtype == DType::complex64 || dtype == DType::complex32;
  return complex ? element_size(dtype) / 2 : element_size(dtype);
}

// "float32", "bfloat16", "bool", "float8_e4m3fn": what torch prints, without the "torch." prefix.
WEIGHTMAP_API std::string_view to_string(DType dtype) noexcept;

// The inverse of to_string; nullopt for any other text.
WEIGHTMAP_API std::optional<DType> dtype_from_string(std::string_view name) noexcept;

// The dtype whose elements a T is, for a type that the library does not know. Then
// TensorView::as<T>() gives a span of them:
//
//   template <>
//   inline constexpr std::optional<weightmap::DType> weightmap::element_type_of<c10::Half> =
//       weightmap::DType::float16;
//
// The type must be trivially copyable, and as large as the element.
template <class T>
inline constexpr std::optional<DType> element_type_of = std::nullopt;

}  // namespace weightmap
