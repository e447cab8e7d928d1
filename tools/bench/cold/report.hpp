// Writes the results for a terminal, and as JSON.
#pragma once

#include <string>

#include "tools/bench/cold/results.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::bench {

// At most about 150 columns wide if names and reasons are short. Omits single samples, and the
// ratios of all times but the last; report_json has them.
std::string text_report(const Results& results);

// One line.
std::string machine_text(const Machine& machine);

// Returns all measurements and conclusions as one JSON document. Names and units are those of
// results.hpp; null means not measured.
//   {"version", "machine", "settings", "warnings", "engines", "files": [{..., "aa_checks",
//    "series": [{"engine", "scenario", "order", ..., "samples", "summaries", "ratios"}]}]}
// Summaries are {"median", "min", "p95"}, ratios against the reference {"value", "low", "high",
// "confidence"}. Checksums are text, as JSON readers round numbers of 64 bits.
Json json_report(const Results& results);

}  // namespace weightmap::cli::bench
