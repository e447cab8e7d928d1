// A timeline as a picture: SVG, or a page around it. Both are self-contained, without scripts.
#pragma once

#include <filesystem>
#include <string>

#include "tools/run/start_timeline.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

std::string timeline_svg(const StartTimeline& timeline);
// With a table of the phases.
std::string timeline_page(const StartTimeline& timeline);

// True for a name that says how to write: .html or .svg.
bool is_timeline_name(const std::filesystem::path& path);
// Replaces the file atomically.
Result<void> write_timeline(const StartTimeline& timeline, const std::filesystem::path& path);

}  // namespace weightmap::cli::start
