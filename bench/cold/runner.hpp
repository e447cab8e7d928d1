// Measures: files, scenarios, orders, rounds, engines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cold/results.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct BenchOptions {
  std::vector<std::string> files;
  std::vector<std::string> engines;  // names; none: all
  std::vector<Scenario> scenarios;
  std::vector<Order> orders;
  unsigned rounds = 7;
  std::string tensor;  // the named one; empty: the usual one
  std::string reference = "populate";
  std::string python = "python3";
  std::optional<std::uint64_t> read_ahead_bytes;  // of the files' devices, while it runs
  bool recycle_memory = true;
};

// Takes as long as it takes, and says on a terminal how far it has come. Fails as
// Checkpoint::open() does, with invalid_argument if the reference cannot be measured here, and with
// io if the read-ahead cannot be set, or if interrupted(). What a single engine cannot do is in the
// results. Leaves nothing behind but the page cache. One at a time: it notes signals meanwhile.
Result<Results> run_bench(const BenchOptions& options);

}  // namespace weightmap::cli::bench
