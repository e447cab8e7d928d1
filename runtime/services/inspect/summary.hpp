// Accumulates a tensor's numbers in blocks, or as values with frequencies.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "weightmap/inspect.hpp"

namespace weightmap::inspect {

inline constexpr std::size_t block_elements = 4096;

// Count, mean, and sum of squared distances from the mean.
struct Spread {
  std::uint64_t count = 0;
  double mean = 0;
  double squares = 0;

  // Combines two spreads (Chan, Golub and LeVeque).
  void add(const Spread& other) noexcept {
    if (other.count == 0) return;
    const double all = static_cast<double>(count + other.count);
    const double part = static_cast<double>(other.count) / all;
    const double apart = other.mean - mean;
    squares += other.squares + apart * apart * static_cast<double>(count) * part;
    mean += apart * part;
    count += other.count;
  }
};

// T is float, double, or an integer of 32 or 64 bits.
template <class T>
class Summary {
 public:
  using Value = std::pair<T, std::uint64_t>;  // with its frequency

  // Takes at most block_elements.
  void add(std::span<const T> block) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      double sum = sum_of(block);
      if (!std::isfinite(sum)) {
        block = only_finite(block);
        sum = sum_of(block);
      }
      add_finite(block, sum);
    } else {
      Integer sum = 0;
      for (const T value : block) sum += value;
      total_ += sum;
      add_finite(block, static_cast<double>(sum));
    }
  }

  // Adds values with their frequencies, in any order.
  void add(std::span<const Value> values) noexcept {
    Spread spread;
    double sum = 0;
    for (const auto& [value, times] : values) {
      if (is_counted_apart(value, times)) continue;
      take_range(value, value);
      if (value == 0) zeros_ += times;
      if constexpr (!std::is_floating_point_v<T>)
        total_ += static_cast<Integer>(value) * static_cast<Integer>(times);
      spread.count += times;
      sum += static_cast<double>(value) * static_cast<double>(times);
    }
    if (spread.count == 0) return;
    spread.mean = sum / static_cast<double>(spread.count);
    for (const auto& [value, times] : values) {
      if (!is_finite(value)) continue;
      const double apart = static_cast<double>(value) - spread.mean;
      spread.squares += apart * apart * static_cast<double>(times);
    }
    spread_.add(spread);
  }

  // Adds the result of another part.
  void add(const Summary& part) noexcept {
    nan_ += part.nan_;
    infinite_ += part.infinite_;
    zeros_ += part.zeros_;
    take_range(part.min_, part.max_);
    spread_.add(part.spread_);
    total_ += part.total_;
  }

  TensorStatistics result() const {
    TensorStatistics all;
    all.nan = nan_;
    all.infinite = infinite_;
    all.zeros = zeros_;
    const std::uint64_t finite = spread_.count;
    all.count = finite + nan_ + infinite_;
    if (finite == 0) return all;
    all.min = number(min_);
    all.max = number(max_);
    all.mean = spread_.mean;
    all.std = std::sqrt(spread_.squares / static_cast<double>(finite));
    if constexpr (!std::is_floating_point_v<T>)
      all.mean = static_cast<double>(total_) / static_cast<double>(finite);
    // Sums of doubles may overflow.
    if (!std::isfinite(*all.mean)) all.mean.reset();
    if (!std::isfinite(*all.std)) all.std.reset();
    return all;
  }

 private:
  __extension__ using Integer = __int128;
  static constexpr std::size_t lanes = 8;  // for vectorisation
  static Number number(T value) noexcept {
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<double>(value);
    else if constexpr (std::is_signed_v<T>)
      return std::int64_t{value};
    else
      return std::uint64_t{value};
  }

  static bool is_finite(T value) noexcept {
    if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
    return true;
  }

  bool is_counted_apart(T value, std::uint64_t times) noexcept {
    if (is_finite(value)) return false;
    (value != value ? nan_ : infinite_) += times;
    return true;
  }

  std::span<const T> only_finite(std::span<const T> block) noexcept {
    std::size_t kept = 0;
    for (const T value : block)
      if (!is_counted_apart(value, 1)) finite_[kept++] = value;
    return {finite_.data(), kept};
  }

  void take_range(T smallest, T largest) noexcept {
    min_ = std::min(min_, smallest);
    max_ = std::max(max_, largest);
  }

  // `take` receives a lane and a value; the caller combines the lanes.
  template <class Take>
  static void in_lanes(std::span<const T> block, const Take& take) noexcept {
    std::size_t i = 0;
    for (; i + lanes <= block.size(); i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) take(lane, block[i + lane]);
    // With a lane known at compile time; otherwise all lanes would be kept in memory.
    for (; i < block.size(); ++i) take(0, block[i]);
  }

  // Minimum, maximum and zeros, written with vectors since compilers do not vectorise a choice of
  // the smaller of two floats.
  void add_range(std::span<const T> block) noexcept {
    constexpr std::size_t wide = 16 / sizeof(T);
    typedef T Vector __attribute__((vector_size(16)));
    Vector smallest;
    for (std::size_t lane = 0; lane < wide; ++lane) smallest[lane] = block[0];
    Vector largest = smallest;
    auto zeros = smallest != smallest;
    std::size_t i = 0;
    for (; i + wide <= block.size(); i += wide) {
      Vector values;
      std::memcpy(&values, block.data() + i, sizeof values);
      smallest = values < smallest ? values : smallest;
      largest = values > largest ? values : largest;
      zeros += values == 0;  // subtracts -1 for each zero
    }
    for (std::size_t lane = 0; lane < wide; ++lane) {
      take_range(smallest[lane], largest[lane]);
      zeros_ += static_cast<std::uint64_t>(-zeros[lane]);
    }
    for (; i < block.size(); ++i) {
      take_range(block[i], block[i]);
      zeros_ += block[i] == 0 ? 1 : 0;
    }
  }

  void add_finite(std::span<const T> block, double sum) noexcept {
    if (block.empty()) return;
    add_range(block);
    spread_.add(spread_of(block, sum));
  }

  static Spread spread_of(std::span<const T> block, double sum) noexcept {
    Spread spread{block.size(), sum / static_cast<double>(block.size()), 0};
    std::array<double, lanes> squares{};
    in_lanes(block, [&](std::size_t lane, T value) {
      const double apart = static_cast<double>(value) - spread.mean;
      squares[lane] += apart * apart;
    });
    for (const double part : squares) spread.squares += part;
    return spread;
  }

  static double sum_of(std::span<const T> block) noexcept {
    std::array<double, lanes> sums{};
    in_lanes(block, [&](std::size_t lane, T value) { sums[lane] += static_cast<double>(value); });
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
  }

  std::uint64_t nan_ = 0;
  std::uint64_t infinite_ = 0;
  std::uint64_t zeros_ = 0;
  T min_ = std::numeric_limits<T>::max();
  T max_ = std::numeric_limits<T>::lowest();
  Spread spread_;
  Integer total_ = 0;  // of integers
  std::array<T, std::is_floating_point_v<T> ? block_elements : 1> finite_;
};

}  // namespace weightmap::inspect
