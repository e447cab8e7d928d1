// Samples: one fresh process each, in a state that was proven, and thrown away if it was not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/cold/bench_file.hpp"
#include "bench/cold/engines.hpp"
#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// The command line of a fresh process.
std::vector<std::string> sample_command(const BenchEngine& engine, const std::string& python,
                                        const std::string& file, const std::string& order_file);

struct SampleTask {
  std::vector<std::string> command;
  Scenario scenario = Scenario::cold;
  bool recycle = true;             // memory, before each
  std::uint64_t checksum = 0;      // that it must find
  std::uint64_t tensor_bytes = 0;  // that it must read
};

// Adds one sample to `series`. A sample in whose time something else happened is repeated up to
// three times. What cannot be measured ends the series: its samples go, and it says why. Fails with
// io only if interrupted().
Result<void> add_sample(Series& series, WatchedFile& file, const SampleTask& task);

}  // namespace weightmap::cli::bench
