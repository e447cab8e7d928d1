// `weightmap bench --start`: measures whole starts of a command, with and without `weightmap run`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/cold/results.hpp"
#include "tools/support/json_out.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::bench {

// The state of the page cache before every start, which is proven.
enum class StartState : std::uint8_t {
  cached,      // what a start reads, and the weights
  model_cold,  // what a start reads; nothing of the weights
  cold,        // nothing of either, but what processes have mapped
};
std::string_view to_string(StartState state) noexcept;  // "cached", "model-cold", "cold"

struct StartSeries {
  std::string contender;           // "stock", "stock again", "run"
  std::vector<double> samples_ms;  // one for each round
};

struct StateResults {
  StartState state = StartState::cached;
  std::string why_not;              // the reason why it was not measured; empty if it was
  std::uint64_t bytes_in_use = 0;   // what stayed in the page cache although cold
  std::vector<StartSeries> series;  // the reference first
};

struct StartResults {
  Machine machine;
  std::string version;  // of weightmap
  std::string program;
  bool ends = false;  // a start is until the command ends; otherwise until it is ready
  unsigned rounds = 0;
  bool recycled_memory = true;
  std::uint64_t files = 0, file_bytes = 0;           // of the start
  std::uint64_t weight_files = 0, weight_bytes = 0;  // of models
  std::vector<StateResults> states;
};

struct StartBenchOptions {
  std::vector<std::string> command;
  std::vector<std::string> models;  // none: those that the command names
  std::string ready;                // as of `run`, but no time; empty: when the command ends
  std::vector<StartState> states;
  unsigned rounds = 7;
  bool recycle_memory = true;
};

// Learns the start once, and measures it then. Fails with not_found if there is no such command,
// with io if it cannot be run, fails, or is ready before it began, if nothing is learned of it, and
// if interrupted(); as Checkpoint::open() if a model cannot be opened.
Result<StartResults> run_start_bench(const StartBenchOptions& options);

std::string start_text(const StartResults& results);
Json start_json(const StartResults& results);

}  // namespace weightmap::cli::bench
