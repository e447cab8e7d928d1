// Writes all measurements and conclusions as one JSON document.
#pragma once

#include "tools/bench/cold/results.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::bench {

// Names and units are those of results.hpp; null means not measured.
//   {"version", "machine", "settings", "warnings", "engines", "files": [{..., "aa_checks",
//    "series": [{"engine", "scenario", "order", ..., "samples", "summaries", "ratios"}]}]}
// Summaries are {"median", "min", "p95"}, ratios against the reference {"value", "low", "high",
// "confidence"}. Checksums are text, as JSON readers round numbers of 64 bits.
Json json_report(const Results& results);

}  // namespace weightmap::cli::bench
