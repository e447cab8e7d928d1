// Measures whole starts of a command, with and without `weightmap run`.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/start_results.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

struct StartBenchOptions {
  std::vector<std::string> command;
  std::vector<std::string> models;  // none: those that the command names
  std::string ready;                // as of `run`, but no time; empty: when the command ends
  std::vector<StartState> states;
  unsigned rounds = 7;
  bool recycle_memory = true;
};

// Learns the start once, and measures it then. Fails with not_found if there is no such
// command, with io if it cannot be run, fails,
// or is ready before it began, if nothing is learned of it, and if interrupted(); as
// Checkpoint::open() if a model cannot be opened.
Result<StartResults> run_start_bench(const StartBenchOptions& options);

}  // namespace weightmap::cli::bench
