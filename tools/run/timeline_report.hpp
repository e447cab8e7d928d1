// A timeline for users: lines of text, with a bar for each phase and shades for what was done when,
// and a page.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/start_timeline.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// What a line of shades shows.
struct TimelineLane {
  std::string_view title, name;
  bool is_of_phase = false;    // otherwise of the whole start
  std::vector<double> values;  // one for each step between two samples
  std::string largest;         // the largest value, for users
};

// Returns those of imports, model creation and loads, or of image and first use of a start from a
// snapshot; then of faults, disk rate and memory.
std::vector<TimelineLane> lanes_of(const StartTimeline& timeline);

// In ASCII, whatever the terminal, with bars of `width` characters; those of phases, disk, faults
// and memory, and with `all` of imports, model creation and loads as well.
std::vector<std::string> timeline_lines(const StartTimeline& timeline, bool all = false,
                                        std::size_t width = 40);

// Returns a page, self-contained and without scripts: these lines, and a table of the phases.
std::string timeline_page(const StartTimeline& timeline);

// True for a name of a page: .html.
bool is_timeline_name(const std::filesystem::path& path);
// Replaces the file atomically.
Result<void> write_timeline(const StartTimeline& timeline, const std::filesystem::path& path);

}  // namespace weightmap::cli::start
