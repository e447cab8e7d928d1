// The report as a page to keep and to hand on.
#pragma once

#include <string>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// One HTML5 file without scripts that refers to nothing outside itself. For light and dark screens,
// narrow ones, and paper. Texts from files are made printable and escaped.
std::string html_report(const Results& results);

}  // namespace weightmap::cli::bench
