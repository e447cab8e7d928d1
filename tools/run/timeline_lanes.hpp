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
  std::vector<StartPhase::Kind> phases;  // that this lane is about; may be none
  bool has_one_scale = true;             // otherwise each series fills the lane's height
  std::vector<LaneSeries> series;
};

// Returns imports, model creation and loads, or image and first use of a start from a snapshot;
// then faults, disk rate and memory.
std::vector<Lane> lanes_of(const StartTimeline& timeline);

// Returns the timeline with at most so many steps between samples.
StartTimeline thinned(const StartTimeline& timeline, std::size_t steps);

}  // namespace weightmap::cli::start
