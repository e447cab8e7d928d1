// The element types of safetensors by name.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "weightmap/dtype.hpp"

namespace weightmap::safetensors {

struct ElementType {
  std::string_view name;
  std::uint8_t bits;
  DType dtype;
};

// Dtype of safetensors/src/tensor.rs. The six-bit types have four elements in three bytes. F4
// counts single elements; torch's type is two of them.
inline constexpr std::array element_types = {
    ElementType{"F32", 32, DType::float32},
    ElementType{"BF16", 16, DType::bfloat16},
    ElementType{"F16", 16, DType::float16},
    ElementType{"F8_E4M3", 8, DType::float8_e4m3fn},
    ElementType{"F8_E5M2", 8, DType::float8_e5m2},
    ElementType{"F8_E8M0", 8, DType::float8_e8m0fnu},
    ElementType{"U8", 8, DType::uint8},
    ElementType{"I8", 8, DType::int8},
    ElementType{"I32", 32, DType::int32},
    ElementType{"I64", 64, DType::int64},
    ElementType{"BOOL", 8, DType::boolean},
    ElementType{"F64", 64, DType::float64},
    ElementType{"I16", 16, DType::int16},
    ElementType{"U16", 16, DType::uint16},
    ElementType{"U32", 32, DType::uint32},
    ElementType{"U64", 64, DType::uint64},
    ElementType{"C64", 64, DType::complex64},
    ElementType{"F8_E4M3FNUZ", 8, DType::float8_e4m3fnuz},
    ElementType{"F8_E5M2FNUZ", 8, DType::float8_e5m2fnuz},
    ElementType{"F4", 4, DType::float4_e2m1fn_x2},
    ElementType{"F6_E2M3", 6, DType::float6_e2m3},
    ElementType{"F6_E3M2", 6, DType::float6_e3m2},
};

// Returns nullptr for an unknown type.
constexpr const ElementType* type_of(std::string_view name) noexcept {
  for (const ElementType& type : element_types)
    if (type.name == name) return &type;
  return nullptr;
}
constexpr const ElementType* type_of(DType dtype) noexcept {
  for (const ElementType& type : element_types)
    if (type.dtype == dtype) return &type;
  return nullptr;
}

}  // namespace weightmap::safetensors
