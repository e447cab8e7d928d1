// Writes the report as a web page for archiving and sharing.
#pragma once

#include <string>

#include "tools/bench/cold/results.hpp"

namespace weightmap::cli::bench {

// Returns one HTML5 file without scripts or external references. It suits light, dark and narrow
// screens, and paper. Texts from files are made printable and escaped.
std::string html_report(const Results& results);

}  // namespace weightmap::cli::bench
