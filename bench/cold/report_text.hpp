// The report for a terminal, and the parts of it that a page has, too.
#pragma once

#include <string>
#include <vector>

#include "bench/cold/findings.hpp"
#include "bench/cold/results.hpp"
#include "tools/support/columns.hpp"

namespace weightmap::cli::bench {

// At most about 150 cells wide as long as names and reasons are short. Leaves out what report_json
// has: each sample, and the ratios of all times but the last.
std::string text_report(const Results& results);

// Of the table of a section: the titles, and the cells of one engine. All text is printable.
std::vector<Column> report_columns();
std::vector<std::string> report_row(const Finding& finding, const FileResults& file);
// What the titles mean, in lines.
std::string report_legend(const Results& results);

// One line each.
std::string machine_text(const Machine& machine);
std::string settings_text(const Results& results);
std::string file_text(const FileResults& file);

}  // namespace weightmap::cli::bench
