#include "tools/cat/decimal.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

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

}  // namespace weightmap::cli
