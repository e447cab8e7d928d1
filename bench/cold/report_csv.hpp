// The samples as a table for spreadsheets and data frames.
#pragma once

#include <string>

#include "bench/cold/results.hpp"

namespace weightmap::cli::bench {

// RFC 4180: a row of names, then one row for each sample. Rounds count from 1. A value that was not
// measured is empty.
std::string csv_report(const Results& results);

}  // namespace weightmap::cli::bench
