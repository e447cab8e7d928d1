#include "tools/cat/elements.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "runtime/base/element_format.hpp"
#include "weightmap/half.hpp"

namespace weightmap::cli {
namespace {

// Parses "1.25e-05".
Decimal parse(std::string_view text) {
  const std::size_t e = text.find('e');
  Decimal out{std::string(text.substr(0, 1)), std::atoi(std::string(text.substr(e + 1)).c_str())};
  if (e > 2) out.digits += text.substr(2, e - 2);
  out.digits.erase(out.digits.find_last_not_of('0') + 1);
  return out.digits.empty() ? Decimal{} : out;
}

template <class T>
Decimal shortest_of(T value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), std::abs(value),
                                 std::chars_format::scientific);
  return parse({text.data(), static_cast<std::size_t>(end.ptr - text.data())});
}

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

Decimal shortest(float value) { return shortest_of(value); }
Decimal shortest(double value) { return shortest_of(value); }

Decimal shortest(double value, double below, double above, bool even) {
  if (value == 0) return {};
  const double low = value - (value - below) / 2;
  const double high = value + (above - value) / 2;
  std::string text;
  for (int places = 0; places < 17; ++places) {
    // The interval above a power of two is wider than below, so the rounded-down number may lie
    // outside although another one of this length lies inside.
    for (double candidate : {value, high}) {
      text = fmt::format("{:.{}e}", candidate, places);
      const double read_back = std::strtod(text.c_str(), nullptr);
      const bool on_edge = read_back == low || read_back == high;
      if ((read_back > low && read_back < high) || (even && on_edge)) return parse(text);
    }
  }
  return parse(text);
}

Decimal scientific(double value, int places) {
  return parse(fmt::format("{:.{}e}", std::abs(value), places));
}

Decimal fixed(double value, int places) {
  std::string digits = fmt::format("{:.{}f}", std::abs(value), places);
  const std::size_t point = digits.find('.');
  auto exponent = static_cast<int>(point == std::string::npos ? digits.size() : point) - 1;
  if (point != std::string::npos) digits.erase(point, 1);
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  exponent -= static_cast<int>(first);
  digits.erase(digits.find_last_not_of('0') + 1);
  return {digits.substr(first), exponent};
}

std::string plain(const Decimal& decimal, bool power) {
  const int exponent = decimal.exponent;
  std::string text = decimal.digits;
  if (power) {
    if (text.size() > 1) text.insert(1, 1, '.');
    return fmt::format("{}e{:+03}", text, exponent);
  }
  if (exponent < 0) {
    text.insert(0, static_cast<std::size_t>(-exponent), '0');
    return text.insert(1, 1, '.');
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (text.size() <= whole) text.append(whole + 1 - text.size(), '0');
  return text.insert(whole, 1, '.');
}

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
