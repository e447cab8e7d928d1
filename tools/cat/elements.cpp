#include "tools/cat/elements.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "runtime/base/element_format.hpp"
#include "weightmap/half.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::cli {
namespace {

template <class T>
Real load_small(const std::byte* at) {
  using Bits = decltype(T{}.bits());
  const auto decode = [](unsigned bits) -> double { return T::from_bits(static_cast<Bits>(bits)); };
  constexpr unsigned all_bits = std::numeric_limits<Bits>::max();
  constexpr bool has_sign = !std::is_same_v<T, float8_e8m0fnu>;
  const unsigned bits = load_element<Bits>(at);
  const double value = decode(bits);
  if (!std::isfinite(value)) return {value, {}};
  const unsigned magnitude = has_sign ? bits & (all_bits / 2) : bits;
  const double size = std::abs(value);
  const double below = magnitude > 0 ? decode(magnitude - 1) : 0;
  double above = decode(magnitude + 1);
  // The largest number has no upper neighbour; its interval is symmetric.
  if (!std::isfinite(above)) above = size + (size - below);
  return {value, shortest(size, below, above, magnitude % 2 == 0)};
}

template <class T>
Real load_native(const std::byte* at) {
  const T value = load_element<T>(at);
  return {static_cast<double>(value), std::isfinite(value) ? shortest(value) : Decimal{}};
}

Real load_real(DType dtype, const std::byte* at) {
  if (dtype == DType::float64) return load_native<double>(at);
  if (dtype == DType::float32) return load_native<float>(at);
  Real real{};
  with_small_float(dtype, [&](auto type) { real = load_small<decltype(type)>(at); });
  return real;
}

template <class Signed, class Unsigned>
std::string integer_text(const std::byte* at, bool with_sign) {
  return with_sign ? std::to_string(load_element<Signed>(at))
                   : std::to_string(load_element<Unsigned>(at));
}

}  // namespace

DType real_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::complex128:
      return DType::float64;
    case DType::complex64:
      return DType::float32;
    case DType::complex32:
      return DType::float16;
    default:
      return dtype;
  }
}

ElementKind kind_of(DType dtype) noexcept {
  if (dtype == DType::boolean) return ElementKind::boolean;
  if (real_type(dtype) != dtype) return ElementKind::complex;
  const bool native = dtype == DType::float64 || dtype == DType::float32;
  const bool real = native || with_small_float(dtype, [](auto) {});
  return real ? ElementKind::real : ElementKind::integer;
}

double rounded(DType dtype, double value) noexcept {
  if (dtype == DType::float32) return static_cast<double>(static_cast<float>(value));
  // Numbers above one are rounded as if the exponent had no maximum.
  int exponent = 0;
  const double mantissa = value > 1 ? std::frexp(value, &exponent) : value;
  double result = value;
  with_small_float(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, float8_e8m0fnu>)
      result = std::ldexp(1.0, std::ilogb(value / 0.75));  // ties go up
    else
      result = std::ldexp(static_cast<double>(T(static_cast<float>(mantissa))), exponent);
  });
  return result;
}

bool Elements::boolean(std::size_t index) const noexcept { return bytes[index] != std::byte{0}; }

std::string Elements::integer(std::size_t index) const {
  const std::size_t size = element_size(dtype);
  const std::byte* at = bytes.data() + index * size;
  if (const std::optional<int> small = number_in_low_bits(dtype, *at))
    return std::to_string(*small);
  const bool with_sign = element_format(dtype).numpy_kind == 'i';
  switch (size) {
    case 8:
      return integer_text<std::int64_t, std::uint64_t>(at, with_sign);
    case 4:
      return integer_text<std::int32_t, std::uint32_t>(at, with_sign);
    case 2:
      return integer_text<std::int16_t, std::uint16_t>(at, with_sign);
    default:
      return integer_text<std::int8_t, std::uint8_t>(at, with_sign);
  }
}

Real Elements::real(std::size_t index) const {
  return load_real(dtype, bytes.data() + index * element_size(dtype));
}

Real Elements::half(std::size_t index, bool imaginary) const {
  const std::size_t size = element_size(dtype);
  return load_real(real_type(dtype), bytes.data() + index * size + (imaginary ? size / 2 : 0));
}

}  // namespace weightmap::cli
