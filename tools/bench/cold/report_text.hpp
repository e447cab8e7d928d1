// Writes the report for a terminal, and the parts that it shares with the page.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/cold/findings.hpp"
#include "tools/bench/cold/results.hpp"
#include "tools/support/columns.hpp"

namespace weightmap::cli::bench {

// At most about 150 columns wide if names and reasons are short. Omits single samples, and the
// ratios of all times but the last; report_json has them.
std::string text_report(const Results& results);

// The titles of a section's table, and the cells of one engine. All text is printable.
std::vector<Column> report_columns();
std::vector<std::string> report_row(const Finding& finding, const FileResults& file);
// Explains the titles, in lines.
std::string report_legend(const Results& results);

// Return one line each.
std::string machine_text(const Machine& machine);
std::string settings_text(const Results& results);
std::string file_text(const FileResults& file);

}  // namespace weightmap::cli::bench
