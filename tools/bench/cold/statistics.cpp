#include "tools/bench/cold/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

#include "tools/support/text.hpp"

namespace weightmap::cli::bench {
namespace {

double median_of_sorted(std::span<const double> values) {
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

struct Rank {
  std::size_t k;  // the interval is from the k-th smallest to the k-th largest, counted from 0
  double confidence;
};

// The median is outside if fewer than k + 1 of n fair coins show heads, or tails. long double can
// hold 2^-n for every practical count of rounds.
Rank sign_test_rank(std::size_t n) {
  long double coins = std::ldexp(1.0L, -static_cast<int>(n));  // exactly k heads
  long double outside = 2 * coins;
  Rank rank{0, static_cast<double>(1 - outside)};
  for (std::size_t k = 1; 2 * k + 1 < n; ++k) {
    coins = coins * static_cast<long double>(n - k + 1) / static_cast<long double>(k);
    outside += 2 * coins;
    if (1 - outside < 0.95L) break;
    rank = {k, static_cast<double>(1 - outside)};
  }
  return rank;
}

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

Summary summarize(std::vector<double> values) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {none, none, none};
  std::sort(values.begin(), values.end());
  const std::size_t rank = (values.size() * 95 + 99) / 100;
  return {median_of_sorted(values), values.front(), values[rank - 1]};
}

std::optional<Ratio> compare(std::span<const double> mine, std::span<const double> reference) {
  const std::size_t rounds = std::min(mine.size(), reference.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rounds; ++i) {
    if (!(reference[i] > 0)) return std::nullopt;
    ratios.push_back(mine[i] / reference[i]);
  }
  if (ratios.empty()) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  const Rank rank = sign_test_rank(rounds);
  return Ratio{median_of_sorted(ratios), ratios[rank.k], ratios[rounds - 1 - rank.k],
               rank.confidence};
}

Json describe(const Summary& summary) {
  return {{"median", summary.median}, {"min", summary.min}, {"p95", summary.p95}};
}

Json describe(const std::optional<Ratio>& ratio) {
  if (!ratio) return nullptr;
  return {{"value", ratio->value},
          {"low", ratio->low},
          {"high", ratio->high},
          {"confidence", ratio->confidence}};
}

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
