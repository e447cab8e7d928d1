// Where it was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// All but read_ahead_bytes. The file system and device are those of `file`.
Machine describe_machine(const std::string& file);

std::uint64_t memory_bytes() noexcept;
// MemAvailable.
std::uint64_t available_memory();

// Ticks of all processors until now.
struct ProcessorTime {
  std::uint64_t all = 0;
  std::uint64_t stolen = 0;  // taken by the host for other machines

  static ProcessorTime now();
};

// Processes that want a processor, averaged over the last minute.
double load_average();

}  // namespace weightmap::cli::bench
