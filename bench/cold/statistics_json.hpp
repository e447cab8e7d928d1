// Statistics as the reports in JSON have them.
#pragma once

#include "bench/cold/statistics.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::bench {

// {"median", "min", "p95"}
Json describe(const Summary& summary);

// {"value", "low", "high", "confidence"}; null for none.
Json describe(const std::optional<Ratio>& ratio);

}  // namespace weightmap::cli::bench
