// Writes the results of `weightmap bench --remote`.
#pragma once

#include <string>

#include "tools/bench/remote_runner.hpp"

namespace weightmap::cli::bench {

std::string remote_text(const RemoteResults& results);
Json remote_json(const RemoteResults& results);

}  // namespace weightmap::cli::bench
