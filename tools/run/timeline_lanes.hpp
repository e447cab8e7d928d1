// The lanes of a timeline's picture: what each shows, as rates and amounts over the time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/start_timeline.hpp"

namespace weightmap::cli::start {

struct LaneSeries {
  std::string_view name;
  std::vector<double> values;  // one for each step between two samples
  std::string largest;         // the largest value, for users
};

struct Lane {
  std::string_view title;
  bool is_of_phase;  // otherwise of the whole start
  std::vector<LaneSeries> series;
};

// Returns imports, model creation and loads, or image and first use of a start from a snapshot;
// then faults, disk rate and memory.
std::vector<Lane> lanes_of(const StartTimeline& timeline);

}  // namespace weightmap::cli::start
