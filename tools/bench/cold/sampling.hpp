// Samples: one fresh process each, in a verified state, discarded after a disturbance.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cold/bench_file.hpp"
#include "tools/bench/cold/engines.hpp"
#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

// Returns the command line of a fresh process.
std::vector<std::string> sample_command(const BenchEngine& engine, const std::string& python,
                                        const std::string& file, const std::string& order_file);

struct SampleTask {
  std::vector<std::string> command;
  Scenario scenario = Scenario::cold;
  bool recycle = true;             // memory, before each sample
  std::uint64_t checksum = 0;      // the expected one
  std::uint64_t tensor_bytes = 0;  // the expected ones
};

// Adds one sample to `series`. A disturbed sample is repeated up to three times. If it is
// impossible, the series loses its samples and gets the reason. Fails with io only if
// interrupted().
Result<void> add_sample(Series& series, WatchedFile& file, const SampleTask& task);

}  // namespace weightmap::cli::bench
