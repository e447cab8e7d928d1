// Integers of less than a byte.
#pragma once

#include <cstddef>
#include <optional>

#include "weightmap/dtype.hpp"

namespace weightmap {

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
