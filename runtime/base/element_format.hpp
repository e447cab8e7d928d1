// The names of element types in other systems: the struct module, numpy and its files, DLPack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weightmap/dtype.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

// Quantized and packed types have the names of their stored integers.
struct ElementFormat {
  std::string_view name;         // torch's, as in to_string(DType)
  std::string_view struct_code;  // "f", "q", "Zd"; empty if the struct module has none
  // 'f', 'i', 'u', 'c' or 'b', which makes numpy's "f4" together with the size in bytes; 0 if numpy
  // itself has no such type.
  char numpy_kind;
  // "float32"; if numpy_kind is 0, the name in the package ml_dtypes; empty if it has none either.
  std::string_view numpy_name;
  std::optional<std::uint8_t> dlpack_code;  // DLDataTypeCode of DLPack 1.1

  // True if numpy has this very type, and not only the type of the stored integers.
  constexpr bool is_numpy_type() const noexcept { return numpy_kind != 0 && numpy_name == name; }
};

// Returns a reference to static data.
WEIGHTMAP_API const ElementFormat& element_format(DType dtype) noexcept;

// The number that an element of int2, int4, uint2 or uint4 is, whose byte has it in the low bits,
// as ml_dtypes writes it; nullopt for other types.
constexpr std::optional<int> number_in_low_bits(DType dtype, std::byte element) noexcept {
  const bool has_sign = dtype == DType::int2 || dtype == DType::int4;
  if (!has_sign && dtype != DType::uint2 && dtype != DType::uint4) return std::nullopt;
  const int end = dtype == DType::int2 || dtype == DType::uint2 ? 4 : 16;
  const int bits = std::to_integer<int>(element) & (end - 1);
  return has_sign && bits >= end / 2 ? bits - end : bits;
}

}  // namespace weightmap
