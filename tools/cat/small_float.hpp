// Floating point formats that C++20 has no type for: float16, bfloat16, the float8 family.
#pragma once

#include <cstdint>

#include "weightmap/dtype.hpp"

namespace weightmap::cli {

// Sign, exponent and mantissa from the top bit down; widths in bits.
struct SmallFloat {
  enum Special : std::uint8_t {
    ieee,           // the highest exponent holds infinities and NaNs
    one_nan,        // "fn": no infinity, NaN is all ones, everything else is a number
    no_zero_sign,   // "fnuz": no infinity, no -0; its pattern is the only NaN
    exponent_only,  // e8m0: no sign, no zero, 0xFF is NaN
  };
  unsigned exponent_bits;
  unsigned mantissa_bits;
  int bias;
  Special special;

  // Everything but the sign.
  std::uint32_t magnitude_mask() const noexcept {
    return (std::uint32_t{1} << (exponent_bits + mantissa_bits)) - 1;
  }
  // Exact: each of these formats fits a double.
  double decode(std::uint32_t bits) const noexcept;
  // The nearest value of this format, as if its exponents had no upper end; ties to even.
  double round(double value) const noexcept;
};

// nullptr for every dtype but these.
const SmallFloat* small_float(DType dtype) noexcept;

}  // namespace weightmap::cli
