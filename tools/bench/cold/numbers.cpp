#include "tools/bench/cold/numbers.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

std::string fixed(double value, int decimals) {
  std::array<char, 400> out{};
  std::snprintf(out.data(), out.size(), "%.*f", decimals, value);
  return out.data();
}

std::string ratio_number(double value, int decimals) {
  if (value > 0 && value < 0.01) return fixed(value, 4);
  return value < 9.995 ? fixed(value, decimals) : short_number(value);
}

// Two decimals would hide on which side of 1 an end of the interval is.
int decimals(const Ratio& ratio) {
  const auto near_1 = [](double end) { return std::abs(end - 1) < 0.01; };
  return near_1(ratio.low) || near_1(ratio.high) ? 3 : 2;
}

}  // namespace

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  // The limits account for rounding: 9.996 is 10.0.
  if (value < 0.9995) return fixed(value, 3);
  if (value < 9.995) return fixed(value, 2);
  if (value < 99.95) return fixed(value, 1);
  return fixed(value, 0);
}

std::string duration(double milliseconds) {
  if (milliseconds < 999.5) return short_number(milliseconds) + " ms";
  return short_number(milliseconds / 1000) + " s";
}

std::string ratio_text(const Ratio& ratio) {
  const int digits = decimals(ratio);
  const std::string value = ratio_number(ratio.value, digits) + "x";
  if (ratio.confidence == 0) return value;
  return value + " [" + ratio_number(ratio.low, digits) + ", " + ratio_number(ratio.high, digits) +
         "]";
}

std::string percent(double part) {
  if (std::isnan(part)) return "-";
  return fixed(part * 100, part < 0.0995 || (part > 0.9 && part < 0.9995) ? 1 : 0) + " %";
}

std::string gigabytes_per_second(std::uint64_t bytes, double milliseconds) {
  if (!(milliseconds > 0)) return "-";
  return short_number(static_cast<double>(bytes) / milliseconds / 1e6);
}

std::string short_count(double value) {
  if (std::isnan(value)) return "-";
  if (value < 9999.5) return fixed(value, 0);
  if (value < 999.5e3) return fixed(value / 1e3, 0) + "k";
  return short_number(value / 1e6) + "M";
}

std::string short_bytes(double bytes) {
  return std::isnan(bytes) ? "-" : human_bytes(static_cast<std::uint64_t>(bytes));
}

}  // namespace weightmap::cli::bench
