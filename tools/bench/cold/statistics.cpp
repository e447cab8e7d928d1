#include "tools/bench/cold/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

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

}  // namespace weightmap::cli::bench
