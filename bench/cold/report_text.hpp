// The report for a terminal.
#pragma once

#include <string>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// At most about 140 cells wide as long as names and reasons are short. Leaves out what report_json
// and report_html have: system calls, RssFile, the ratios of all times but the last.
std::string text_report(const Results& results);

}  // namespace weightmap::cli::bench
