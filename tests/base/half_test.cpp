#include "weightmap/half.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace weightmap;

namespace {

#include "tests/base/float8_values.inc"

constexpr float infinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7FC00000 : std::bit_cast<std::uint32_t>(value);
}

template <class T>
using BitsOf = decltype(T{}.bits());

template <class T>
T from(unsigned bits) {
  return T::from_bits(static_cast<BitsOf<T>>(bits));
}

template <class T>
constexpr unsigned all_bits = std::numeric_limits<BitsOf<T>>::max();

template <class T>
void check_values(const std::uint32_t (&values)[256]) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    CAPTURE(bits);
    CHECK(bits_of(from<T>(bits)) == values[bits]);
  }
}

// Each number comes back, what lies between two goes to the nearer one, and the middle to the one
// with an even last bit; with either sign.
template <class T>
void check_rounding() {
  std::size_t wrong = 0;
  for (unsigned bits = 0; bits <= all_bits<T> / 2; ++bits) {
    const float value = from<T>(bits);
    if (!std::isfinite(value)) continue;
    const unsigned sign = all_bits<T> / 2 + 1;
    const bool has_negative_zero = from<T>(sign) == 0.0f;
    wrong += T(value).bits() != bits;
    wrong += T(-value).bits() != (bits == 0 && !has_negative_zero ? 0 : bits | sign);
    const float next = from<T>(bits + 1);
    if (bits == all_bits<T> / 2 || !std::isfinite(next)) continue;
    const float middle = value + (next - value) / 2;
    if (middle == value || middle == next) continue;  // no float lies between
    wrong += T(middle).bits() != (bits % 2 == 0 ? bits : bits + 1);
    wrong += T(std::nextafter(middle, value)).bits() != bits;
    wrong += T(std::nextafter(middle, next)).bits() != bits + 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("float8 values are those of ml_dtypes") {
  check_values<float8_e5m2>(float8_e5m2_values);
  check_values<float8_e4m3fn>(float8_e4m3fn_values);
  check_values<float8_e5m2fnuz>(float8_e5m2fnuz_values);
  check_values<float8_e4m3fnuz>(float8_e4m3fnuz_values);
  check_values<float8_e8m0fnu>(float8_e8m0fnu_values);
}

TEST_CASE("bfloat16 is the upper half of a float") {
  std::size_t wrong = 0;
  for (unsigned bits = 0; bits <= 0xFFFF; ++bits)
    wrong += std::bit_cast<std::uint32_t>(static_cast<float>(from<bfloat16>(bits))) != bits << 16;
  CHECK(wrong == 0);
}

TEST_CASE("float16 values are what IEEE 754 says") {
  std::size_t wrong = 0;
  for (unsigned bits = 0; bits <= 0xFFFF; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) & 31;
    const auto mantissa = static_cast<double>(bits & 1023);
    const double size =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
    const float value = from<float16>(bits);
    if (exponent == 31)
      wrong += mantissa == 0 ? !std::isinf(value) : !std::isnan(value);
    else
      wrong += std::abs(static_cast<double>(value)) != size;
    wrong += std::signbit(value) != (bits > 0x7FFF);
  }
  CHECK(wrong == 0);
  CHECK(static_cast<float>(from<float16>(0x3555)) == 0.333251953125f);
  CHECK(static_cast<float>(from<float16>(0xFBFF)) == -65504.0f);
}

#ifdef __FLT16_MANT_DIG__
#ifdef __aarch64__
using OwnHalf = __fp16;  // gcc 12 has the other name in C alone
#else
using OwnHalf = _Float16;
#endif
TEST_CASE("float16 converts both ways as the compiler's own type does") {
  std::size_t wrong = 0;
  for (unsigned bits = 0; bits <= 0xFFFF; ++bits) {
    const float own = std::bit_cast<OwnHalf>(static_cast<std::uint16_t>(bits));
    wrong += bits_of(own) != bits_of(from<float16>(bits));
  }
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += 4099) {  // of all exponents
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
    wrong += std::bit_cast<std::uint16_t>(static_cast<OwnHalf>(value)) != float16(value).bits();
  }
  CHECK(wrong == 0);
}
#endif

TEST_CASE("a float is rounded to the nearest value, and of two to the even one") {
  check_rounding<float16>();
  check_rounding<bfloat16>();
  check_rounding<float8_e5m2>();
  check_rounding<float8_e4m3fn>();
  check_rounding<float8_e5m2fnuz>();
  check_rounding<float8_e4m3fnuz>();
}

TEST_CASE("what is beyond the largest value becomes infinity, or NaN where there is none") {
  CHECK(float16(65519.0f).bits() == 0x7BFF);
  CHECK(float16(-65520.0f).bits() == 0xFC00);
  CHECK(float16(infinity).bits() == 0x7C00);
  CHECK(bfloat16(std::numeric_limits<float>::max()).bits() == 0x7F80);
  // As ml_dtypes has them.
  CHECK(float8_e5m2(61439.0f).bits() == 0x7B);
  CHECK(float8_e5m2(61440.0f).bits() == 0x7C);
  CHECK(float8_e4m3fn(464.0f).bits() == 0x7E);
  CHECK(float8_e4m3fn(465.0f).bits() == 0x7F);
  CHECK(float8_e4m3fn(-500.0f).bits() == 0xFF);
  CHECK(float8_e4m3fn(-infinity).bits() == 0xFF);
  CHECK(float8_e5m2fnuz(61439.0f).bits() == 0x7F);
  CHECK(float8_e5m2fnuz(61440.0f).bits() == 0x80);
  CHECK(float8_e4m3fnuz(-infinity).bits() == 0x80);
}

TEST_CASE("NaN stays NaN, and keeps the upper bits of its payload where the type has some") {
  const float nan = std::bit_cast<float>(0xFFC12345u);
  CHECK(float16(nan).bits() == 0xFE09);
  CHECK(bfloat16(nan).bits() == 0xFFC1);
  // Dropping the payload of a signalling NaN does not make an infinity of it.
  CHECK(float16(std::bit_cast<float>(0x7F800001u)).bits() == 0x7E00);
  CHECK(bfloat16(std::bit_cast<float>(0x7F800001u)).bits() == 0x7FC0);
  CHECK(float8_e5m2(nan).bits() == 0xFE);
  CHECK(float8_e4m3fn(nan).bits() == 0xFF);
  CHECK(float8_e5m2fnuz(nan).bits() == 0x80);
  CHECK(float8_e4m3fnuz(nan).bits() == 0x80);
}

TEST_CASE("what is too small becomes zero, with its sign where there is one") {
  CHECK(float16(0x1p-25f).bits() == 0);
  CHECK(float16(-0x1.000002p-25f).bits() == 0x8001);
  CHECK(float16(0x1p-149f).bits() == 0);
  CHECK(bfloat16(0x1p-133f).bits() == 1);
  CHECK(bfloat16(0x1p-134f).bits() == 0);
  CHECK(float8_e4m3fn(-1e-10f).bits() == 0x80);
  CHECK(float8_e4m3fnuz(-1e-10f).bits() == 0);
}

TEST_CASE("they are known while compiling, and count as floats") {
  static_assert(float16(1.5f).bits() == 0x3E00);
  static_assert(float16(1.5f) + bfloat16(2.0f) == 3.5f);
  static_assert(float16{} == 0.0f);
  static_assert(sizeof(bfloat16) == 2 && sizeof(float8_e4m3fn) == 1);
  static_assert(std::is_trivially_copyable_v<float16> && std::is_standard_layout_v<float16>);
  static_assert(!std::is_convertible_v<float, float16>);
  CHECK(float16::from_bits(0x7E00) != float16::from_bits(0x7E00));
}
