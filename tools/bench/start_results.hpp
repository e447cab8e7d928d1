// The measurements of `weightmap bench --start`: plain data from the runner, for the reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/cold/results.hpp"

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

}  // namespace weightmap::cli::bench
