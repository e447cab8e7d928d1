// Everything that was measured, and what follows from it, as one JSON document.
#pragma once

#include "tools/bench/results.hpp"
#include "tools/json_out.hpp"

namespace weightmap::cli::bench {

// Names and units as in results.hpp; null for what was not measured. docs/cli.md describes it.
Json json_report(const Results& results);

}  // namespace weightmap::cli::bench
