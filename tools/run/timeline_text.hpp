// A timeline as lines of text: a bar for each phase, and shades for what was done when.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/run/start_timeline.hpp"

namespace weightmap::cli::start {

// In ASCII, whatever the terminal, with bars of `width` characters; those of phases, disk, faults
// and memory, and with `all` of imports, model creation and loads as well.
std::vector<std::string> timeline_lines(const StartTimeline& timeline, bool all = false,
                                        std::size_t width = 40);

}  // namespace weightmap::cli::start
