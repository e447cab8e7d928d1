// Formats figures for users: three digits, and always a unit.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/cold/statistics.hpp"

namespace weightmap::cli::bench {

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
