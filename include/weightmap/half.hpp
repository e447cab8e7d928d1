// Value types for the floating point types of weights that C++20 lacks: float16, bfloat16 and the
// float8 family.
//
//   const auto weights = checkpoint->get("norm.weight")->as<weightmap::float16>();
//   float sum = 0;
//   for (const float weight : *weights) sum += weight;
//
// Each type consists of its bits only, so that a span of them may lie in the mapping. It converts
// implicitly to float, which has all of its values; arithmetic and comparisons are float's. The
// conversion from float is explicit and rounds to nearest, ties to even. Values beyond the largest
// become infinity, or NaN if the type has no infinity. Subnormal floats are not flushed to zero.
//
// For third-party types see element_type_of in dtype.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "weightmap/dtype.hpp"

namespace weightmap {

// The meaning of the bit patterns at the upper end.
enum class SmallFloatEnd : std::uint8_t {
  ieee,  // the highest exponent is for infinities and NaNs
  fn,    // no infinities; all ones is NaN
  fnuz,  // no infinities and no -0, whose pattern is the only NaN
};

// Sign, exponent and mantissa from the top bit down; widths in bits.
template <class Bits, unsigned exponent_bits, unsigned mantissa_bits, unsigned bias,
          SmallFloatEnd end>
class SmallFloat {
 public:
  constexpr SmallFloat() noexcept = default;  // 0
  constexpr explicit SmallFloat(float value) noexcept
      : bits_(round(std::bit_cast<std::uint32_t>(value))) {}

  static constexpr SmallFloat from_bits(Bits bits) noexcept {
    SmallFloat value;
    value.bits_ = bits;
    return value;
  }
  constexpr Bits bits() const noexcept { return bits_; }

  constexpr operator float() const noexcept {
    if constexpr (bias == float_bias) {
      return std::bit_cast<float>(std::uint32_t{bits_} << dropped_bits);
    } else {
      // Without branches, so that compilers vectorise it.
      const std::uint32_t magnitude = bits_ & magnitude_mask;
      const std::uint32_t normal = (magnitude << dropped_bits) + rebias;
      // The mantissa of a subnormal, as the last bits of a number that gives them this weight.
      const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
          std::bit_cast<float>(subnormal_unit | magnitude) - std::bit_cast<float>(subnormal_unit));
      const std::uint32_t value = pick(magnitude <= mantissa_mask, subnormal, normal) |
                                  pick(is_special(magnitude), special_bits, 0);
      return std::bit_cast<float>(value | (std::uint32_t{bits_} & sign_bit) << (31 - sign_place));
    }
  }

 private:
  static constexpr unsigned float_bias = 127;
  static constexpr unsigned sign_place = exponent_bits + mantissa_bits;
  static constexpr std::uint32_t sign_bit = std::uint32_t{1} << sign_place;
  static constexpr std::uint32_t magnitude_mask = sign_bit - 1;
  static constexpr std::uint32_t mantissa_mask = (std::uint32_t{1} << mantissa_bits) - 1;
  static constexpr unsigned dropped_bits = 23 - mantissa_bits;  // of a float's mantissa
  static constexpr std::uint32_t rebias = (float_bias - bias) << 23;
  static constexpr std::uint32_t subnormal_unit = (float_bias + 24 - bias - mantissa_bits) << 23;
  static constexpr std::uint32_t float_infinity = 0x7F800000;
  static constexpr std::uint32_t special_bits =
      end == SmallFloatEnd::ieee ? float_infinity : 0x7FC00000;
  static constexpr std::uint32_t infinity = magnitude_mask & ~mantissa_mask;  // of ieee
  static constexpr std::uint32_t largest = end == SmallFloatEnd::ieee ? infinity - 1
                                           : end == SmallFloatEnd::fn ? magnitude_mask - 1
                                                                      : magnitude_mask;

  constexpr bool is_special(std::uint32_t magnitude) const noexcept {
    return end == SmallFloatEnd::fnuz ? bits_ == sign_bit : magnitude > largest;
  }

  // A conditional would let compilers branch, since a subtraction of floats may trap.
  static constexpr std::uint32_t pick(bool first, std::uint32_t a, std::uint32_t b) noexcept {
    const std::uint32_t mask = std::uint32_t{0} - std::uint32_t{first};
    return (a & mask) | (b & ~mask);
  }

  // Drops `count` bits, at most 24 of at most 31.
  static constexpr std::uint32_t drop(std::uint32_t value, unsigned count) noexcept {
    const std::uint32_t half = std::uint32_t{1} << (count - 1);
    return (value + half - 1 + ((value >> count) & 1)) >> count;
  }

  static constexpr std::uint32_t round_subnormal(std::uint32_t magnitude) noexcept {
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa =
        (magnitude & 0x7FFFFF) | (exponent > 0 ? std::uint32_t{1} << 23 : 0);
    const std::uint32_t count =
        dropped_bits + (float_bias + 1 - bias) - (exponent > 0 ? exponent : 1);
    return count > 24 ? 0 : drop(mantissa, count);
  }

  static constexpr Bits round(std::uint32_t value) noexcept {
    const std::uint32_t magnitude = value & 0x7FFFFFFF;
    const std::uint32_t sign = value >> 31 << sign_place;
    const bool is_nan = magnitude > float_infinity;
    std::uint32_t rounded = magnitude >= rebias + (std::uint32_t{1} << 23) || rebias == 0
                                ? drop(magnitude - rebias, dropped_bits)
                                : round_subnormal(magnitude);
    if (end == SmallFloatEnd::fnuz) {
      if (is_nan || rounded > largest) return static_cast<Bits>(sign_bit);
      return static_cast<Bits>(rounded == 0 ? 0 : sign | rounded);
    }
    if (is_nan)  // keeps the upper bits of the payload; the result is quiet
      rounded = magnitude_mask & (magnitude >> dropped_bits | infinity | (mantissa_mask + 1) / 2);
    else if (rounded > largest)
      rounded = largest + 1;  // infinity, or the NaN
    if (end == SmallFloatEnd::fn && is_nan) rounded = magnitude_mask;
    return static_cast<Bits>(sign | rounded);
  }

  Bits bits_ = 0;
};

using float16 = SmallFloat<std::uint16_t, 5, 10, 15, SmallFloatEnd::ieee>;
using bfloat16 = SmallFloat<std::uint16_t, 8, 7, 127, SmallFloatEnd::ieee>;
using float8_e5m2 = SmallFloat<std::uint8_t, 5, 2, 15, SmallFloatEnd::ieee>;
using float8_e4m3fn = SmallFloat<std::uint8_t, 4, 3, 7, SmallFloatEnd::fn>;
using float8_e5m2fnuz = SmallFloat<std::uint8_t, 5, 2, 16, SmallFloatEnd::fnuz>;
using float8_e4m3fnuz = SmallFloat<std::uint8_t, 4, 3, 8, SmallFloatEnd::fnuz>;

// A power of two from 2^-127 to 2^127, or NaN: scales of blocks. It has no sign and no zero.
class float8_e8m0fnu {
 public:
  constexpr float8_e8m0fnu() noexcept = default;  // 2^-127

  static constexpr float8_e8m0fnu from_bits(std::uint8_t bits) noexcept {
    float8_e8m0fnu value;
    value.bits_ = bits;
    return value;
  }
  constexpr std::uint8_t bits() const noexcept { return bits_; }

  constexpr operator float() const noexcept {
    constexpr std::uint32_t smallest = 0x00400000;
    constexpr std::uint32_t nan = 0x7FC00000;
    const std::uint32_t power = std::uint32_t{bits_} << 23;
    return std::bit_cast<float>(bits_ == 0 ? smallest : bits_ == 0xFF ? nan : power);
  }

 private:
  std::uint8_t bits_ = 0;
};

// Calls use(T{}) for the type T above that matches `dtype`; returns whether there is one.
template <class Use>
constexpr bool with_small_float(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::float16:
      return use(float16{}), true;
    case DType::bfloat16:
      return use(bfloat16{}), true;
    case DType::float8_e5m2:
      return use(float8_e5m2{}), true;
    case DType::float8_e4m3fn:
      return use(float8_e4m3fn{}), true;
    case DType::float8_e5m2fnuz:
      return use(float8_e5m2fnuz{}), true;
    case DType::float8_e4m3fnuz:
      return use(float8_e4m3fnuz{}), true;
    case DType::float8_e8m0fnu:
      return use(float8_e8m0fnu{}), true;
    default:
      return false;
  }
}

template <>
inline constexpr std::optional<DType> element_type_of<float16> = DType::float16;
template <>
inline constexpr std::optional<DType> element_type_of<bfloat16> = DType::bfloat16;
template <>
inline constexpr std::optional<DType> element_type_of<float8_e5m2> = DType::float8_e5m2;
template <>
inline constexpr std::optional<DType> element_type_of<float8_e4m3fn> = DType::float8_e4m3fn;
template <>
inline constexpr std::optional<DType> element_type_of<float8_e5m2fnuz> = DType::float8_e5m2fnuz;
template <>
inline constexpr std::optional<DType> element_type_of<float8_e4m3fnuz> = DType::float8_e4m3fnuz;
template <>
inline constexpr std::optional<DType> element_type_of<float8_e8m0fnu> = DType::float8_e8m0fnu;

}  // namespace weightmap
