// A daemon's metrics for Prometheus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/support/json_out.hpp"

namespace weightmap::cli::hold {

// Returns the text exposition format, version 0.0.4, of a status from Keeper::describe(). Omits
// figures that are null or unknown. The label `checkpoint` is the path, with U+FFFD for invalid
// UTF-8.
std::string metrics_text(const Json& status, std::optional<std::uint64_t> read_bytes);

}  // namespace weightmap::cli::hold
