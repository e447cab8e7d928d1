// Figures as people read them: three digits, and never a unit left out.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cold/statistics.hpp"

namespace weightmap::cli::bench {

// Three significant digits without an exponent where that is short: "0.052", "1.20", "612", "5281".
// "-" for what is not a number.
std::string short_number(double value);

// "52.1 ms", "1.20 s".
std::string duration(double milliseconds);

// "2.41x [2.30, 2.66]"; without the interval if one round gave none.
std::string ratio_text(const Ratio& ratio);

// "98.4 %", "0.3 %".
std::string percent(double part);

// 10^9 bytes a second, "3.52"; "-" if no time passed.
std::string gigabytes_per_second(std::uint64_t bytes, double milliseconds);

// "812", "53k", "1.2M".
std::string short_count(double value);

// Of a summary of bytes.
std::string short_bytes(double bytes);

}  // namespace weightmap::cli::bench
