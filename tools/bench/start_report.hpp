// Writes the results of `weightmap bench --start`.
#pragma once

#include <string>

#include "tools/bench/start_results.hpp"
#include "tools/support/json_out.hpp"

namespace weightmap::cli::bench {

std::string start_text(const StartResults& results);
Json start_json(const StartResults& results);

}  // namespace weightmap::cli::bench
