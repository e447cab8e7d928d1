// Element types of tensors: PyTorch's, those of safetensors and the block types of GGUF.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weightmap/version.hpp"

namespace weightmap {

// Most have torch's spelling. The quantized types are named by their raw integer representation;
// the packed ones (quint4x2, quint2x4, float4_e2m1fn_x2, bits1x8 ...) have one-byte elements that
// hold several values each.
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
  // Elements of one or two bytes whose type the file does not tell: numpy forgets bfloat16, float8
  // and int4 when it saves them. "opaque[1]" and "opaque[2]"; OpenOptions::dtypes tells the type.
  opaque8,
  opaque16,
  // Blocked, see block_of(). The six-bit types are safetensors', spelled in torch's style.
  float6_e2m3,
  float6_e3m2,
  // The others are ggml's, with ggml's spelling.
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,
  q2_K,
  q3_K,
  q4_K,
  q5_K,
  q6_K,
  q8_K,
  iq2_xxs,
  iq2_xs,
  iq3_xxs,
  iq1_s,
  iq4_nl,
  iq3_s,
  iq2_s,
  iq4_xs,
  iq1_m,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
  q1_0,
  q2_0,
};
inline constexpr std::size_t dtype_count = static_cast<std::size_t>(DType::q2_0) + 1;

// A group of elements that is stored together, and its size in bytes.
struct Block {
  std::uint32_t elements;
  std::uint32_t bytes;
};

// True if elements do not have bytes of their own, but lie in blocks along the last dimension. Each
// row of such a tensor is whole blocks, one after another.
constexpr bool is_blocked(DType dtype) noexcept { return dtype >= DType::float6_e2m3; }

// Bytes of one element: 1, 2, 4, 8 or 16. Precondition: the type is not blocked, since its elements
// have no size; block_of() and bytes_of() accept every type.
constexpr std::size_t element_size(DType dtype) noexcept {
  using enum DType;
  assert(!is_blocked(dtype));
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
    case opaque16:
      return 2;
    default:
      return 1;
  }
}

// True if the file does not tell what its elements are, see DType::opaque8.
constexpr bool is_opaque(DType dtype) noexcept {
  return dtype == DType::opaque8 || dtype == DType::opaque16;
}

// {1, element_size(dtype)} for other types. The sizes are those of ggml's structs (ggml-common.h).
constexpr Block block_of(DType dtype) noexcept {
  using enum DType;
  switch (dtype) {
    case float6_e2m3:
    case float6_e3m2:
      return {4, 3};
    case q4_0:
    case iq4_nl:
      return {32, 18};
    case q4_1:
      return {32, 20};
    case q5_0:
      return {32, 22};
    case q5_1:
      return {32, 24};
    case q8_0:
      return {32, 34};
    case q8_1:
      return {32, 36};
    case mxfp4:
      return {32, 17};
    case nvfp4:
      return {64, 36};
    case q2_0:
      return {64, 18};
    case q1_0:
      return {128, 18};
    case q2_K:
      return {256, 84};
    case q3_K:
    case iq3_s:
      return {256, 110};
    case q4_K:
      return {256, 144};
    case q5_K:
      return {256, 176};
    case q6_K:
      return {256, 210};
    case q8_K:
      return {256, 292};
    case iq2_xxs:
    case tq2_0:
      return {256, 66};
    case iq2_xs:
      return {256, 74};
    case iq3_xxs:
      return {256, 98};
    case iq1_s:
      return {256, 50};
    case iq2_s:
      return {256, 82};
    case iq4_xs:
      return {256, 136};
    case iq1_m:
      return {256, 56};
    case tq1_0:
      return {256, 54};
    default:
      return {1, static_cast<std::uint32_t>(element_size(dtype))};
  }
}

// Bytes of so many elements. Precondition: whole blocks, and a result that fits 64 bits.
constexpr std::uint64_t bytes_of(DType dtype, std::uint64_t elements) noexcept {
  if (!is_blocked(dtype)) return elements * element_size(dtype);
  const Block block = block_of(dtype);
  return elements / block.elements * block.bytes;
}

// The unit in bytes that a change of byte order reverses: the element, or half of it for complex
// types. Precondition: the type is not blocked.
constexpr std::size_t swap_unit(DType dtype) noexcept {
  const bool complex =
      dtype == DType::complex128 || dtype == DType::complex64 || dtype == DType::complex32;
  return complex ? element_size(dtype) / 2 : element_size(dtype);
}

// "float32", "bfloat16", "bool", "float8_e4m3fn": torch's spelling without the "torch." prefix;
// "q4_K": ggml's spelling.
WEIGHTMAP_API std::string_view to_string(DType dtype) noexcept;

// Returns the inverse of to_string; nullopt for any other text.
WEIGHTMAP_API std::optional<DType> dtype_from_string(std::string_view name) noexcept;

// Declares that a third-party type T is an element of a dtype, so that TensorView::as<T>() returns
// a span of them:
//
//   template <>
//   inline constexpr std::optional<weightmap::DType> weightmap::element_type_of<c10::Half> =
//       weightmap::DType::float16;
//
// The type must be trivially copyable and have the size of the element.
template <class T>
inline constexpr std::optional<DType> element_type_of = std::nullopt;

}  // namespace weightmap
