// Describes the machine of a measurement.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

// The file system and device are those of `file`.
Machine describe_machine(const std::string& file);

std::uint64_t memory_bytes() noexcept;
// Returns MemAvailable.
std::uint64_t available_memory();

// Ticks of all processors so far.
struct ProcessorTime {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0;  // taken by the host for other machines

  static ProcessorTime now();
};

// Returns the average number of runnable processes over the last minute.
double load_average();

}  // namespace weightmap::cli::bench
