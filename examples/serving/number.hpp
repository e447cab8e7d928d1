// Floating point numbers as checkpoints store them, and their value as double, which is exact.
#pragma once

#include <bit>
#include <cstdint>

namespace serving {

struct Float64 {
  using Stored = double;
  static double value(double stored) noexcept { return stored; }
};

struct Float32 {
  using Stored = float;
  static double value(float stored) noexcept { return stored; }
};

// The upper half of a float32.
struct BFloat16 {
  using Stored = std::uint16_t;
  static double value(std::uint16_t stored) noexcept {
    return std::bit_cast<float>(std::uint32_t{stored} << 16);
  }
};

// One bit of sign, five of exponent with a bias of 15, ten of fraction.
struct Float16 {
  using Stored = std::uint16_t;
  static double value(std::uint16_t stored) noexcept {
    const std::uint32_t magnitude = (stored & 0x7FFFu) << 13;
    // In the places of a float32 the exponent lacks the difference of the two biases, 112; the
    // product supplies it, to subnormal numbers as well. Infinity and NaN keep the largest.
    const float finite = std::bit_cast<float>(magnitude) * 0x1p112f;
    const float special = std::bit_cast<float>(magnitude | 0x7F800000u);
    const float absolute = magnitude < 0x7C00u << 13 ? finite : special;
    return stored & 0x8000u ? -absolute : absolute;
  }
};

}  // namespace serving
