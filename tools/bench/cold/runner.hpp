// Runs the measurement: files, scenarios, orders, rounds, engines.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/cold/results.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct BenchOptions {
  std::vector<std::string> files;
  std::vector<std::string> engines;  // names; none: all
  std::vector<Scenario> scenarios;
  std::vector<Order> orders;
  unsigned rounds = 7;
  std::string tensor;  // the named one; empty: the default
  std::string reference = "populate";
  std::string python = "python3";
  bool recycle_memory = true;
};

// Runs for as long as needed, and shows its progress on a terminal. Fails as Checkpoint::open()
// does, with invalid_argument if the reference cannot be measured here, and with io if
// interrupted(). Failures of single engines are in the results.
// Leaves nothing behind but the page cache. One call at a time, since it records signals.
Result<Results> run_bench(const BenchOptions& options);

}  // namespace weightmap::cli::bench
