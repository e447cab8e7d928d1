#include "tools/cat/small_float.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weightmap::cli {
namespace {

constexpr SmallFloat float16 = {5, 10, 15, SmallFloat::ieee};
constexpr SmallFloat bfloat16 = {8, 7, 127, SmallFloat::ieee};
constexpr SmallFloat float8_e5m2 = {5, 2, 15, SmallFloat::ieee};
constexpr SmallFloat float8_e4m3fn = {4, 3, 7, SmallFloat::one_nan};
constexpr SmallFloat float8_e5m2fnuz = {5, 2, 16, SmallFloat::no_zero_sign};
constexpr SmallFloat float8_e4m3fnuz = {4, 3, 8, SmallFloat::no_zero_sign};
constexpr SmallFloat float8_e8m0fnu = {8, 0, 127, SmallFloat::exponent_only};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double SmallFloat::decode(std::uint32_t bits) const noexcept {
  const std::uint32_t magnitude = bits & magnitude_mask();
  const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
  const std::uint32_t mantissa = magnitude & ((std::uint32_t{1} << mantissa_bits) - 1);
  if (special == exponent_only) return magnitude == 0xFF ? nan : std::ldexp(1.0, exponent - bias);
  const bool negative = bits > magnitude_mask();
  if (special == one_nan && magnitude == magnitude_mask()) return nan;
  if (special == no_zero_sign && negative && magnitude == 0) return nan;
  const bool highest = exponent == (1 << exponent_bits) - 1;
  if (special == ieee && highest) return mantissa != 0 ? nan : negative ? -infinity : infinity;
  const auto places = static_cast<int>(mantissa_bits);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - places)
                                     : std::ldexp(mantissa + (std::uint32_t{1} << mantissa_bits),
                                                  exponent - bias - places);
  return negative ? -value : value;
}

double SmallFloat::round(double value) const noexcept {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  const double unit = std::ldexp(1.0, exponent - static_cast<int>(mantissa_bits));
  return std::nearbyint(value / unit) * unit;
}

const SmallFloat* small_float(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return &float16;
    case DType::bfloat16:
      return &bfloat16;
    case DType::float8_e5m2:
      return &float8_e5m2;
    case DType::float8_e4m3fn:
      return &float8_e4m3fn;
    case DType::float8_e5m2fnuz:
      return &float8_e5m2fnuz;
    case DType::float8_e4m3fnuz:
      return &float8_e4m3fnuz;
    case DType::float8_e8m0fnu:
      return &float8_e8m0fnu;
    default:
      return nullptr;
  }
}

}  // namespace weightmap::cli
