// A timeline as a page, which is self-contained and has no scripts: the bars of timeline_text.hpp,
// and a table of the phases.
#pragma once

#include <filesystem>
#include <string>

#include "tools/run/start_timeline.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

std::string timeline_page(const StartTimeline& timeline);

// True for a name of a page: .html.
bool is_timeline_name(const std::filesystem::path& path);
// Replaces the file atomically.
Result<void> write_timeline(const StartTimeline& timeline, const std::filesystem::path& path);

}  // namespace weightmap::cli::start
