// Statistics of a few repeated measurements, and their figures for users: three digits, and always
// a unit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/support/json_out.hpp"

namespace weightmap::cli::bench {

// In the unit of the values. The median of an even count is the mean of the middle two. p95 is by
// the nearest-rank rule: the smallest value that at least 95 % of the values do not exceed, so it
// is one of them, and the largest of fewer than 20.
struct Summary {
  double median, min, p95;
};
// All NaN if there are no values.
Summary summarize(std::vector<double> values);

// A ratio to the reference: 2 is twice as long.
struct Ratio {
  double value;
  double low, high;   // the interval; both ends are ratios of some round
  double confidence;  // 0 to 1: the probability that such an interval contains the true median
  // False if the interval contains 1, so that the measurements do not distinguish the two.
  bool differs() const noexcept { return low > 1 || high < 1; }
};

// Compares the rounds that both have, so that a disturbance of a whole round, such as a busy disk,
// affects both sides. `value` is the median of the rounds' ratios. The interval is that of the sign
// test: from the k-th smallest ratio to the k-th largest, with the largest k that still gives 95 %
// by the binomial distribution. That is exact for any distribution, and equal ratios only make it
// safer; it requires only that the rounds are independent. 7 rounds give the smallest to the
// largest, 98.4 %; 9 rounds the 2nd to the 8th, 96.1 %. Fewer than 6 cannot give 95 %: then it is
// the smallest to the largest with its actual confidence, which is 0 for one round. Returns nothing
// without common rounds, or if a reference is not above 0.
std::optional<Ratio> compare(std::span<const double> mine, std::span<const double> reference);

// Return the JSON of the reports: {"median", "min", "p95"}, and {"value", "low", "high",
// "confidence"} or null.
Json describe(const Summary& summary);
Json describe(const std::optional<Ratio>& ratio);

// Returns three significant digits without an exponent, if that is short: "0.052", "1.20", "612",
// "5281". "-" for NaN.
std::string short_number(double value);

// Returns "52.1 ms", "1.20 s".
std::string duration(double milliseconds);

// Returns "2.41x [2.30, 2.66]"; without the interval if there was one round.
std::string ratio_text(const Ratio& ratio);

// Returns "98.4 %", "0.3 %".
std::string percent(double part);

// Returns 10^9 bytes per second, "3.52"; "-" if no time passed.
std::string gigabytes_per_second(std::uint64_t bytes, double milliseconds);

// Returns "812", "53k", "1.2M".
std::string short_count(double value);

// Formats the bytes of a summary.
std::string short_bytes(double bytes);

}  // namespace weightmap::cli::bench
