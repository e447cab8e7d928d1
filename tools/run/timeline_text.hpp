// A timeline as lines of text: a bar for each phase, and shades for disk, faults and memory.
#pragma once

#include <string>
#include <vector>

#include "tools/run/start_timeline.hpp"

namespace weightmap::cli::start {

// In ASCII, whatever the terminal.
std::vector<std::string> timeline_lines(const StartTimeline& timeline);

}  // namespace weightmap::cli::start
